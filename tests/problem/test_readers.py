"""No file, however broken, ends a command in anything but one line that says what is wrong where.

Found by hand first; then mutants of valid files of every kind, fed to every command that reads it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.cli.app import app
from pipesat.cli.derived import AnnotatedValue
from pipesat.core.atomic import temporary_folder, write_file
from tests.conftest import Outcome, Run
from tests.support.outcomes import one_bad_line
from tests.support.readers import (
    COMMANDS,
    MANY_DIGITS,
    TOO_MANY_DIGITS,
    choose,
    faults,
    make_world,
    mutate,
    reading_only,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    with reading_only():
        yield folder


# Mutants


@pytest.mark.slow
@settings(max_examples=300)
@given(rng=st.randoms(use_true_random=False))
def test_any_file_that_is_mutated(world: Path, rng: Random) -> None:
    command, path = choose(world, rng)
    mutant = mutate(path.name, path.read_bytes(), rng)
    assert faults(world, command, path, mutant) == [], (command.words, path.name, mutant.done)


def test_every_kind_of_file_is_read_by_some_command(world: Path) -> None:
    read = {name for command in COMMANDS for name in command.reads} | {"result"}
    made = {path.name for path in world.iterdir()}
    assert made - read == {"trace-1.json.gz", "order.hazards.txt", "order.knobs.json"}
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
        for value in ("x", float("inf"), [], 10**400)
    },
    **{
        f"distributedInfo = {value}": (
            lambda trace, value=value: trace.update(distributedInfo=value),
            "distributedInfo",
        )
        for value in (3, "x", [], {"rank": "0"}, {"rank": -1}, {"rank": 1.5})
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
        "stage 1 is on ranks 0 and 1: is it all of one job?",
    ),
    "an unknown microbatch": (
        with_ranges(lambda event: event.update(name="PP:0F7")),
        "no step has the forward of microbatch 0 on stage 0",
    ),
    "an op twice": (
        with_ranges(lambda event: event.update(name="PP:0F1")),
        "0F1 is twice in step 0",
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
    outcome = cli(
        "timeline", "import", world / "problem.json", path, world / "trace-1.json", "-o", new
    )
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
    one_bad_line(
        cli("export", world / "problem.json", path, "--to", "schedule", "-o", new), str(path)
    )
    outcome = cli("export", world / "problem.json", path, "--to", "schedule", "-o", new)
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
    said = "null" if value is None else repr(value)
    outcome = cli("timeline", "compare", world / "problem.json", path, "--png", png)
    one_bad_line(outcome, f"{path}: us_per_time_unit: got {said}, expected a number from 1e-15")
    assert not png.exists()


@pytest.mark.slow
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
        ["problem", "from-profile", path, "--layers", "-o", tmp_path / "new"],
        ["run", *pair, "--model", path, "-o", tmp_path / "new"],
    ):
        one_bad_line(
            cli(*command), f"{path}: {where}: got 'float99', expected one of 'float64', 'float32'"
        )


def test_numbers_of_many_digits(cli: Run, world: Path, tmp_path: Path) -> None:
    text = (world / "problem.json").read_text()
    path = tmp_path / "problem.json"
    for digits, words in ((MANY_DIGITS, "got 999"), (TOO_MANY_DIGITS, "thousands of digits")):
        path.write_text(text.replace('"W": 1', f'"W": {digits}', 1))
        one_bad_line(cli("solve", path), f"{path}: stages[0].W: ", words)
    path.write_text(text.replace('"W": 1', f'"W": {TOO_MANY_DIGITS}', 1) + "}")
    one_bad_line(cli("solve", path), f"{path}: not JSON: ", "Extra data")


# What nobody foresaw


def break_check(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("pipesat.problem.problem_file.read_problem", fail)


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


# Options, before any work


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands_of(command, (*path, name))
        else:
            yield (*path, name), command


ALL_COMMANDS = dict(commands_of(app))


@pytest.mark.parametrize("name", ALL_COMMANDS, ids=" ".join)
def test_every_number_has_bounds(name: tuple[str, ...]) -> None:
    for option in ALL_COMMANDS[name].params:
        if isinstance(option.type, AnnotatedValue):
            wanted = option.type.wanted.each or option.type.wanted
            if "str" not in wanted.kinds:  # else the function reads it
                assert not any(map(wanted.takes, (-(10**16), 10**16))), option.opts
        elif isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
            bounded = isinstance(option.type, click.IntRange | click.FloatRange)
            assert bounded or option.callback.args[1] is not None, option.opts


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "1e300", "10000001"])
def test_seconds_have_bounds(cli: Run, world: Path, text: str) -> None:
    outcome = cli("solve", world / "problem.json", "--time-limit", text)
    one_bad_line(outcome, "--time-limit: got ", "expected a number above 0, at most 10000000")


OUTPUTS = [
    (command, position)
    for command in COMMANDS
    for position, word in enumerate(command.words)
    if word == "{new}"
    and command.words[0] != "solve"  # its -o is a folder, which it creates
    and command.words[:2] != ("timeline", "import")  # a folder, or a file beside a problem file
]


def there(folder: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]) -> None:
    """Make the files that are named, with nothing to read: missing ones would come first."""
    monkeypatch.chdir(folder)
    for word in words:
        if word.endswith((".json", ".toml")):
            Path(word.removeprefix("file=")).touch()


@pytest.mark.parametrize("command", [command for command, _ in OUTPUTS], ids=str)
def test_a_place_that_cannot_be_written_is_known_before_anything_is_read(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    # without a suffix, an order for a runtime goes into a folder, which it creates
    new = tmp_path / "nodir" / ("x.csv" if command.words[0] == "export" else "x")
    words = [word.replace("{new}", str(new)).strip("{}") for word in command.words]
    there(tmp_path, monkeypatch, words)
    one_bad_line(cli(*words), f"{new}: cannot write: No such file or directory")


@pytest.mark.parametrize(
    "words",
    [
        "timeline compare no.json no.json --png NEW",
        "show no --png NEW",
        "show no --svg NEW",
        "sweep no.toml --csv NEW",
        "problem new --devices 1 --microbatches 1 --times F=1 --times B=1 --times W=1 -o NEW",
        "profile -o NEW",
    ],
)
def test_pictures_and_tables_too(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    new = tmp_path / "nodir" / "x"
    there(tmp_path, monkeypatch, words.split())
    outcome = cli(*(str(new) if word == "NEW" else word for word in words.split()))
    one_bad_line(outcome, f"{new}: cannot write: No such file or directory")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "run P S -o N --model m --shape blocks=2",
            "--shape: got 'blocks=2', this is of the built",
        ),
        (
            "run P S -o N --model cut=balanced",
            "--model cut: got 'balanced', only a profile is cut here",
        ),
        ("frontier P --caps 9,points=3", "--caps points: got 3, the caps are given"),
        ("frontier P --caps 9,9", "--caps: got '9,9', 9 appears twice"),
        ("frontier C --placement chain,chain", "--placement: got 'chain,chain', chain appears"),
        (
            "plan L --devices 2 --microbatches 2 --placement loop,chunks=2,chunks=2",
            "--placement chunks: got '2,2', 2 appears twice",
        ),
        (
            "plan L --devices 2 --microbatches 2 --link-delay bandwidth=1e-20",
            "--link-delay bandwidth: got '1e-20', expected a number above 0",
        ),
        (
            "plan L --devices 2 --microbatches 2 --link-delay bandwidth=1/9999999999999",
            "a transfer would take 79999999999992 time units, expected at most 10^12",
        ),
        (
            "plan L --devices 2 --microbatches 2 --link-delay bandwidth=1/0",
            "--link-delay bandwidth: got '1/0'",
        ),
        ("sweep W --dry-run --csv N", "--dry-run runs no case and writes nothing"),
        ("solve P --deterministic --workers 4", "--workers: got 4, `--deterministic` runs one"),
        ("profile -o N --model a:b --config tiny", "--config: got 'tiny', this is of the built-in"),
        (
            "problem from-profile F --devices 2 --microbatches 2 --backward split,split_limit=2",
            "--backward split_limit: got 2.0, it decides",
        ),
        (
            "problem from-profile F --devices 2 --microbatches 2 --memory reserve=999999TiB",
            "--memory reserve: got '999999TiB', expected at most 1000000000000000 bytes",
        ),
        (
            "frontier P --within 5",
            "--within: got '5', expected a share from 0 to 1, or a percentage",
        ),
        ("compare P S --noise 101%", "--noise: got '101%', expected a share from 0 to 1"),
    ],
)
def test_options_that_say_nothing_together_or_too_much(
    cli: Run, world: Path, tmp_path: Path, words: str, message: str
) -> None:
    names = {
        "P": "problem.json",
        "C": "chain.json",
        "S": "schedule.json",
        "L": "layers.json",
        "W": "sweep.toml",
        "F": "profile.json",
    }
    places = {short: world / name for short, name in names.items()} | {"N": tmp_path / "new"}
    one_bad_line(cli(*(places.get(word, word) for word in words.split())), message)
    assert not (tmp_path / "new").exists()


# What a killed process leaves


def test_the_next_write_removes_what_a_killed_process_left_and_no_live_one_s(
    tmp_path: Path,
) -> None:
    text = (
        "import os, pathlib, sys\n"
        "from pipesat.core.atomic import temporary_folder\n"
        f"with temporary_folder(pathlib.Path({str(tmp_path)!r})) as made:\n"
        "    (made / '0').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", text], check=False)
    assert [*tmp_path.glob("*/0")]
    others = {".pipesat.abc", "tmp-x"}
    for name in others:
        (tmp_path / name).mkdir()
    with temporary_folder(tmp_path) as mine:
        write_file(tmp_path / "a", b"new")
        assert {path.name for path in tmp_path.iterdir()} == {"a", mine.name, *others}
    assert {path.name for path in tmp_path.iterdir()} == {"a", *others}


def test_a_name_that_no_file_can_have(cli: Run, world: Path, tmp_path: Path) -> None:
    path = sweep_of(world, tmp_path, f"{world}/chain.json", "x" * 5000)
    outcome = cli("sweep", path, "--dry-run")
    one_bad_line(outcome, "problem[0]: got 'xxx", "no such problem file")


def test_a_line_stays_a_line_whatever_a_name_is(cli: Run, world: Path, tmp_path: Path) -> None:
    document = json.loads((world / "problem.json").read_text()) | {"name": "n" * 100_000}
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document))
    outcome = cli("check", path, world / "schedule.json")
    one_bad_line(outcome, str(world / "schedule.json"), "a schedule of another problem")
    assert len(outcome.err) < 1000


def test_a_profile_s_amounts_that_no_layer_may_have(cli: Run, world: Path, tmp_path: Path) -> None:
    profile = json.loads((world / "profile.json").read_text())
    profile["kinds"]["embedding"]["output"]["bytes"] = 10**13
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    outcome = cli("problem", "from-profile", path, "--layers", "-o", tmp_path / "new")
    one_bad_line(outcome, f"{path}: made into layers: layers[0].output: got 10000000000000")
    assert not (tmp_path / "new").exists()


def test_a_result_for_a_runtime_that_is_not_known(cli: Run, world: Path, tmp_path: Path) -> None:
    place = tmp_path / "result"
    shutil.copytree(world / "result", place)
    result = json.loads((place / "result.json").read_text()) | {"for": "PP:0F0"}
    (place / "result.json").write_text(json.dumps(result))
    outcome = cli("show", place, "--html", tmp_path / "new")
    one_bad_line(outcome, f"{place / 'result.json'}: for: got 'PP:0F0', expected one of 'torch'")
