"""No file, however broken, ends a command in anything but one line that says what is wrong where.

Found by hand first; then mutants of valid files of every kind, fed to every command that reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Outcome, Run
from tests.readers import (
    COMMANDS,
    MANY_DIGITS,
    TOO_MANY_DIGITS,
    choose,
    faults,
    make_world,
    mutate,
    reading_only,
)
from tests.test_bad_input import one_bad_line


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    with reading_only():
        yield folder


# Mutants


@settings(max_examples=300)
@given(rng=st.randoms(use_true_random=False))
def test_any_file_that_is_mutated(world: Path, rng: Random) -> None:
    command, path = choose(world, rng)
    mutant = mutate(path.name, path.read_bytes(), rng)
    assert faults(world, command, path, mutant) == [], (command.words, path.name, mutant.done)


def test_every_kind_of_file_is_read_by_some_command(world: Path) -> None:
    read = {name for command in COMMANDS for name in command.reads} | {"result"}
    made = {path.name for path in world.iterdir()}
    assert made - read == {"trace-1.json.gz", "order.hazards.txt"}
    assert read <= made


# By hand: timeline import


def with_ranges(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def edit(trace: dict[str, Any]) -> None:
        change(trace["traceEvents"][1])

    return edit


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return with_ranges(lambda event: event.pop(key))


BAD_TRACES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    **{
        f"baseTimeNanoseconds = {str(value)[:20]}": (
            lambda trace, value=value: trace.update(baseTimeNanoseconds=value),
            "baseTimeNanoseconds: ",
        )
        for value in ("x", None, 1.5, float("inf"), [], 10**400)
    },
    **{
        f"distributedInfo = {value}": (
            lambda trace, value=value: trace.update(distributedInfo=value),
            "distributedInfo",
        )
        for value in (3, "x", [], {"rank": "0"}, {"rank": -1}, {"rank": 1.5}, {"rank": 7})
    },
    **{
        f"{key} = {str(value)[:20]}": (
            with_ranges(lambda event, key=key, value=value: event.update({key: value})),
            f"traceEvents[1].{key}: ",
        )
        for key in ("ts", "dur")
        for value in ("x", "1", None, [], {}, True, float("inf"), float("nan"), 10**400, 1e300)
    },
    "no ts": (_without("ts"), "traceEvents[1].ts: this key is required and missing"),
    "no dur": (_without("dur"), "traceEvents[1].dur: this key is required and missing"),
    "a negative dur": (with_ranges(lambda event: event.update(dur=-1)), "traceEvents[1].dur: "),
    "an op of rank 1": (
        with_ranges(lambda event: event.update(name="PP:1F0")),
        "1F0 ran here, the problem has stage 1 on device 1",
    ),
    "an unknown microbatch": (
        with_ranges(lambda event: event.update(name="PP:0F7")),
        "0F7 is not an op of this problem",
    ),
    "an op twice": (
        with_ranges(lambda event: event.update(name="PP:0F1")),
        "parts of steps, or different numbers of them",
    ),
    "a step of 300 years": (
        with_ranges(lambda event: event.update(ts=-1e16)),
        "expected at most 1e+15",
    ),
}


@pytest.mark.parametrize("name", BAD_TRACES)
def test_a_bad_trace(cli: Run, world: Path, tmp_path: Path, name: str) -> None:
    change, words = BAD_TRACES[name]
    trace = json.loads((world / "trace-0.json").read_text())
    change(trace)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    new = tmp_path / "new"
    outcome = cli("timeline", "import", world / "problem.json", path, world / "trace-1.json",
                  "-o", new)  # fmt: skip
    one_bad_line(outcome, str(path), words)
    assert not new.exists()


# By hand: everything else


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0F1\r0B0,0B1\n1F0,1B0,1F1,1B1\n", "3 rows, expected 2"),
        ("0F0,0F1,0B0,0B1" + "x" * 140_000 + "\n1F0", "row 1: not CSV: field larger than"),
        ("0F0,\0,0B0\n1F0,1B0", "row 1, cell 2"),
        ("0F0," + "9" * 5000 + "F0\n1F0", "row 1, cell 2"),
    ],
)
def test_a_bad_order(cli: Run, world: Path, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "order.csv"
    path.write_bytes(text.encode())
    new = tmp_path / "new"
    one_bad_line(cli("import", "torch-csv", path, world / "problem.json", "-o", new), str(path))
    outcome = cli("import", "torch-csv", path, world / "problem.json", "-o", new)
    one_bad_line(outcome, str(path), words)
    assert not new.exists()


def sweep_of(world: Path, tmp_path: Path, old: str, new: str) -> Path:
    text = (world / "sweep.toml").read_text()
    for name in ("chain.json", "links.json", "profile.json"):
        text = text.replace(f'"{name}"', f'"{world / name}"')
    old = old.format(world=world)
    assert old in text
    path = tmp_path / "sweep.toml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"{world}/profile.json"', r'"a\u0000b"', ["a\\x00b", "no file's name has a null byte"]),
        ('"{world}/profile.json"', '"no.json"', ["no.json", "No such file"]),
        ('grad_dtype = "float32"', 'grad_dtype = "float99"', ["grad", "'float99'", "float32"]),
        ("{world}/chain.json", r"a\u0000b", ["problem[0]", "no such problem file"]),
    ],
)
def test_a_bad_sweep(
    cli: Run, world: Path, tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    path = sweep_of(world, tmp_path, old, new)
    one_bad_line(cli("sweep", path, "--dry-run"), *words)


@pytest.mark.parametrize("value", [1e308, 1e-300, 0, -1.0, "1", None])
def test_a_time_unit_that_no_run_has(cli: Run, world: Path, tmp_path: Path, value: object) -> None:
    timeline = json.loads((world / "timeline.json").read_text()) | {"us_per_time_unit": value}
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(timeline))
    png = tmp_path / "new.png"
    outcome = cli("timeline", "compare", world / "problem.json", path, "--png", png)
    one_bad_line(outcome, f"{path}: us_per_time_unit: got {value!r}, expected a number from 1e-15")
    assert not png.exists()


@pytest.mark.parametrize("value", [1e18, 1e-15])
def test_the_most_extreme_time_units_can_be_drawn(
    cli: Run, world: Path, tmp_path: Path, value: float
) -> None:
    timeline = json.loads((world / "timeline.json").read_text()) | {"us_per_time_unit": value}
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(timeline))
    outcome = cli("timeline", "compare", world / "problem.json", path, "--png", tmp_path / "a.png")
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("kinds.block.parameters[0].dtype", lambda d: d["kinds"]["block"]["parameters"][0]),
        ("kinds.head.input.dtype", lambda d: d["kinds"]["head"]["input"]),
        ("microbatch.input.dtype", lambda d: d["microbatch"]["input"]),
        ("environment.dtype", lambda d: d["environment"]),
    ],
)
def test_an_unknown_type_in_a_profile(
    cli: Run, world: Path, tmp_path: Path, where: str, change: Callable[[Any], dict[str, Any]]
) -> None:
    profile = json.loads((world / "profile.json").read_text())
    change(profile)["dtype"] = "float99"
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    pair = world / "measured.json", world / "measured-schedule.json"
    for command in (
        ["layers", "from-profile", path, "-o", tmp_path / "new"],
        ["run", *pair, "--model", path, "-o", tmp_path / "new"],
    ):
        one_bad_line(
            cli(*command), f"{path}: {where}: got 'float99', expected 'float64', 'float32'"
        )


def test_numbers_of_many_digits(cli: Run, world: Path, tmp_path: Path) -> None:
    text = (world / "problem.json").read_text()
    path = tmp_path / "problem.json"
    for digits, words in ((MANY_DIGITS, "got 999"), (TOO_MANY_DIGITS, "thousands of digits")):
        path.write_text(text.replace('"W": 1', f'"W": {digits}', 1))
        one_bad_line(cli("solve", path), f"{path}: stages[0].W: ", words)
    path.write_text(text.replace('"W": 1', f'"W": {TOO_MANY_DIGITS}', 1) + "}")
    one_bad_line(cli("solve", path), f"{path}: ", "thousands of digits")


# What nobody foresaw


def break_check(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("pipesat.files.problem_file.read_problem", fail)


def test_a_bug_is_one_line(cli: Run, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_check(monkeypatch, KeyError("a\nb"))
    outcome: Outcome = cli("check", world / "problem.json", world / "schedule.json")
    assert (outcome.code, outcome.out) == (1, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith("pipesat: internal error, please report it: KeyError: ")
    assert "(test_readers.py:" in line
    assert line.endswith("PIPESAT_TRACEBACK=1 shows more")


def test_a_bug_s_traceback(cli: Run, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPESAT_TRACEBACK", "1")
    break_check(monkeypatch, KeyError("mine"))
    with pytest.raises(KeyError, match="mine"):
        cli("check", world / "problem.json", world / "schedule.json")


def test_a_file_that_vanishes_is_not_blamed_on_standard_output(
    cli: Run, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_check(monkeypatch, FileNotFoundError(2, "No such file or directory", "x.json"))
    outcome = cli("check", world / "problem.json", world / "schedule.json")
    assert outcome.code == 1
    assert "internal error" in outcome.err
    assert "standard output" not in outcome.err


def test_no_memory_is_no_bug(cli: Run, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_check(monkeypatch, MemoryError())
    outcome = cli("check", world / "problem.json", world / "schedule.json")
    assert (outcome.code, outcome.err) == (1, "pipesat: error: out of memory\n")
