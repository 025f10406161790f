"""compare: ratios, the table in narrow and wide terminals, placements; baseline --list."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipesat
from pipesat.compare.best_known import Comparison, with_given
from pipesat.compare.compare import compare
from pipesat.compare.hand_written import ScheduleRow, against_best
from pipesat.compare.result import Result
from pipesat.compare.schedules import schedule_of
from pipesat.core.claims import Bound
from pipesat.core.showing import Column, Table
from pipesat.core.showing import table_of as table_of_records
from pipesat.core.text_tables import table_lines
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Schedule, Timed
from pipesat.schedule.timing import time_order
from tests.conftest import Run
from tests.support.orders import order_of
from tests.support.problems import chain, document, vee

CONTRACT = {"name", "makespan", "span", "bubble", "peak_memory", "valid", "why_not"}


# Ratios


def test_ratios_to_the_best_valid_row() -> None:
    rows = [
        ScheduleRow("a", makespan=10, span=8, valid=True),
        ScheduleRow("b", makespan=5, span=9),  # over the cap, say: it cannot be the best
        ScheduleRow("c", makespan=20, span=4, valid=True),
        ScheduleRow("d", why_not="needs a V"),
    ]
    assert [row.ratio_to_best for row in against_best(rows, "makespan")] == [1, 0.5, 2, None]
    assert [row.ratio_to_best for row in against_best(rows, "span")] == [2, 2.25, 1, None]
    assert [row.ratio_to_best for row in against_best(rows[1:2], "span")] == [None]


def result_of(problem: Problem, bound: int | None, **changes: Any) -> Result:
    schedule = time_order(problem, order_of("0F0 0BW0 0F1 0BW1"))
    given = {
        "status": "feasible",
        "objective": "makespan",
        "schedule": schedule,
        "bound": None if bound is None else Bound(bound, "test"),
        "baseline": None,
        "wall_s": 0.0,
        "seed": 0,
        "workers": 1,
    }
    return Result(problem, **(given | changes))


def test_ratios_to_the_bound() -> None:
    problem = chain(1, 2)  # every order takes 6
    for bound, ratio in ((4, 1.5), (6, 1), (0, None), (None, None)):
        result = result_of(problem, bound, status="optimal" if bound == 6 else "feasible")
        rows = {row.name: row for row in compare(problem, result)}
        assert rows["gpipe"].ratio_to_bound == rows["solver"].ratio_to_bound == ratio
        assert rows["gpipe"].ratio_to_best == rows["solver"].ratio_to_best == 1
    assert all(row.ratio_to_bound is None for row in compare(problem, search=False))


def test_the_objective_orders_the_rows(cli: Run, save: Any) -> None:
    # F = B = W = 1 with delay 3: an idle start of device 1 counts for the makespan only
    path = save(chain(2, 3, comm=3))
    for objective in ("makespan", "span"):
        outcome = cli("compare", path, "--objective", objective, "--workers", 1, "--json")
        valid = [row for row in outcome.json if row["valid"]]
        best = min(row[objective] for row in valid)
        assert all(row["ratio_to_best"] == row[objective] / best for row in valid)
        assert [row[objective] for row in valid] == sorted(row[objective] for row in valid)
        text = cli("compare", path, "--objective", objective, "--workers", 1).out
        assert f"order and ratios by {objective}" in text
        values = [int(line.split()[1]) for line in table_of(text) if line.split()[1].isdigit()]
        assert values == sorted(values)


# Schedules of one's own

# Unit costs, p = 4, m = 8: 1F1B takes (m + p - 1) (F + B + W) = 33; a device's load is 24, and the
# first F is 3 late on the last one, so 27 is the least, and ZB-H1 has it. 33 is 22.222... % more:
# no limit, so it goes to the nearest. Device 0 starts first and ends last: it is idle for 9 of 33,
# and for 3 of 27.


def test_ones_own_schedule_beside_the_optimum(cli: Run, save: Any, tmp_path: Path) -> None:
    path, mine = save(chain(4, 8)), tmp_path / "mine.json"
    assert cli("export", path, "1f1b", "--to", "schedule", "-o", mine).code == 0
    late = json.loads(mine.read_text())
    late["devices"] = [[[op, s + 5, e + 5] for op, s, e in row] for row in late["devices"]]
    mine.write_text(json.dumps(late))
    text = cli("compare", path, mine, "--workers", 1).out
    waits = "device 0 waits 6 longer for inputs than in the best schedule, 18 % of the time"
    waits += ". Its own times end 5 later than its order can"
    assert f"mine.json: 22.22 % above the optimum. {waits}" in " ".join(text.split())
    rows = {row["name"]: row for row in cli("compare", path, mine, "--workers", 1, "--json").json}
    assert [rows[str(mine)][key] for key in ("makespan", "valid")] == [33, True]
    assert rows[str(mine)]["ratio_to_bound"] == 33 / 27


def test_only_what_the_best_schedule_does_not_wait_is_a_reason() -> None:
    """On one device of F = B = W = 1, an order waits for nothing: 1 is lost at its start."""
    problem = chain(1, 2)
    result = result_of(problem, 6, status="optimal")
    best = result.schedule
    assert best is not None
    late = Schedule(
        tuple(tuple(Timed(t.item, t.start + 1, t.end + 1) for t in row) for row in best.devices)
    )
    row = ScheduleRow("late", makespan=7, valid=True, schedule=late)
    assert Comparison(None, problem, result, ()).above(row) == "16.67 % above the optimum"


def test_ones_own_schedule_may_be_the_answer() -> None:
    problem = chain(4, 8)
    early = {
        "schedule": BASELINES["gpipe"](problem),
        "bound": Bound(24, "load"),
    }
    made = {"mine": BASELINES["zb-h1"](problem), "theirs": BASELINES["1f1b"](problem)}
    compared = compare(problem, Result(**(vars_of(problem) | early)), schedules=made)
    assert compared["mine"].makespan == compared["solver"].makespan == 27
    assert compared.result is not None
    assert compared.result.baseline is not None
    assert compared.result.baseline.name in BASELINES  # a hand-written one, not the user's
    rows = compare(problem, schedules=made, search=False)
    assert rows["mine"].ratio_to_best == 1
    assert rows["theirs"].ratio_to_best == 33 / 27


def test_a_better_schedule_of_ones_own_is_adopted() -> None:
    problem = chain(4, 8)
    before = Result(**(vars_of(problem) | {"schedule": BASELINES["gpipe"](problem)}))
    mine = BASELINES["zb-h1"](problem)
    after = with_given(before, [BASELINES["1f1b"](problem), replace(mine, source="mine")])
    assert (after.value, after.baseline) == (27, None)
    assert "the search ended with 33; mine, given, has 27" in after.explanation
    assert with_given(after, [BASELINES["1f1b"](problem)]) is after
    assert with_given(after, []) is after


def vars_of(problem: Problem) -> dict[str, Any]:
    given = {"status": "feasible", "objective": "makespan", "bound": None, "baseline": None}
    return {"problem": problem, "wall_s": 0.0, "seed": 0, "workers": 1} | given


def test_what_is_no_schedule_of_the_problem_is_refused(cli: Run, save: Any, tmp_path: Path) -> None:
    path, mine = save(chain(2, 2)), tmp_path / "mine.json"
    cli("export", path, "1f1b", "--to", "schedule", "-o", mine)
    late = json.loads(mine.read_text())
    late["devices"][0][0][2] += 1  # F takes 1, not 2
    mine.write_text(json.dumps(late))
    outcome = cli("compare", path, mine)
    assert outcome.code == 1
    assert "is not a valid schedule" in outcome.err


def test_a_schedule_of_ones_own_that_needs_more_memory_has_its_row(
    cli: Run, save: Any, tmp_path: Path
) -> None:
    # 1F1B holds 4 on the first of 4 devices, here are 3; its order is of any capacity
    tight, order = chain(4, 8, held=(1, 1), cap=3), schedule_of(chain(4, 8), "1f1b").order
    mine = save([[str(op) for op in row] for row in order], "mine.json")
    path = save(tight)
    outcome = cli("compare", path, mine, "--time-limit", 1)
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert "mine.json: does not fit into memory: 4 of 3 on device 0, the fullest device" in text
    for searched in (True, False):
        table = compare(tight, schedules={"mine": mine}, search=searched, time_limit=1)
        row = table["mine"]
        assert (row.valid, row.makespan, row.peak_memory) == (False, 33, [4, 3, 2, 1])
        assert "over its capacity of 3" in (row.why_not or "")
        assert table.best is not None
        assert table.best.valid
    exact = cli("compare", save(chain(4, 8, held=(1, 1), cap=4)), mine, "--time-limit", 1)
    assert "mine.json: 22.22 % above the optimum" in " ".join(exact.out.split())  # 33 / 27


# The text


def table_of(text: str) -> list[str]:
    """Lines of the table below its headings, up to the next section or blank line."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("name ")) + 1
    return lines[start : next(i for i in range(start, len(lines)) if not lines[i].strip())]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_table_fits_the_terminal(
    cli: Run, save: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    stage = {"F": 123456, "B": 234567, "W": 111111}
    outcome = cli("compare", save(chain(4, 8, cap=4, **stage)), "--time-limit", 1, "--json")
    rows = {row["name"]: row for row in outcome.json}
    text = cli("compare", save(chain(4, 8, cap=4, **stage)), "--time-limit", 1).out
    assert max(map(len, text.splitlines())) <= width
    assert all(line == line.rstrip() for line in text.splitlines())
    # whatever the width: names, the objective, memory against the cap and both ratios stay
    for name in ("gpipe", "1f1b", "zb-h1", "list-scheduling"):
        line, *_ = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert str(rows[name]["makespan"]) in line.split()
        assert f"{100 * max(rows[name]['peak_memory']) / 4:.2f} %" in line
    # GPipe holds all 8, cap 4; 1F1B holds 4
    gpipe = next(i for i, line in enumerate(text.splitlines()) if line.startswith("gpipe "))
    assert re.search("200.00 % .*over capacity", text.splitlines()[gpipe])
    assert rows["gpipe"]["ratio_to_bound"] is None  # the bound is of four, not of eight
    assert text.count("bubble") == 2  # of the makespan, and of the span: no column vanishes
    assert text.index("\n1f1b ") < text.index("over capacity")


# Tables


def test_columns_go_in_their_order_where_room_is_short() -> None:
    columns = [Column("name", number=False), Column("aa", spare=1), Column("b\nbb", spare=2)]
    lines = [("x", "1", "22"), ("yyyyy", "333", "4"), "a text"]
    assert list(table_lines(Table(columns, lines), 14)) == [
        "             b",
        "name    aa  bb",
        "x        1  22",
        "yyyyy  333   4",
        "a text",
    ]
    assert list(table_lines(Table(columns, lines), 13))[2] == "x       1 22"  # one space between
    first, second, third = ("name    aa", "x        1", "yyyyy  333"), (), ()
    second = ("        b", "name   bb", "x      22", "yyyyy   4")  # nothing vanishes
    assert [*table_lines(Table(columns, lines), 11)] == [*first, "a text", "", *second]
    names = ("name", "x", "yyyyy", "a text")  # stands out, as the blocks of one column do
    second = ("       b", "name  bb", "x     22", "yyyyy  4")
    third = ("name   aa", "x       1", "yyyyy 333")
    assert [*table_lines(Table(columns, lines), 3)] == [*names, "", *third, "", *second]


def test_a_gap_stays_where_the_names_of_baselines_have_no_room() -> None:
    name = "interleaved-overlapped"
    row = {"cap": 13, "gap": 0.25, "bound": 36, "baseline": name, "seconds": 1, "found_by": name}
    heads = {
        width: next(line for line in table_lines(table_of_records([row]), width) if "cap" in line)
        for width in (80, 44, 34)
    }
    heads = {width: line.split() for width, line in heads.items()}
    assert heads[80] == ["cap", "gap", "bound", "baseline", "seconds", "by"]
    assert heads[44] == ["cap", "gap", "bound", "by"]
    assert heads[34] == ["cap", "gap", "by"]


def test_long_names_lose_their_middle_while_they_still_differ() -> None:
    columns = [Column("name", number=False), Column("b")]
    ends = [f"{'long/' * 9}{end}.json" for end in "ab"]
    shown = table_lines(Table(columns, [(end, "1") for end in ends]), 44)
    assert [*shown] == [
        "name                    b",
        "long/long/l…ong/a.json  1",
        "long/long/l…ong/b.json  1",
    ]
    alike = [f"{middle:0^90}" for middle in "12"]
    assert all(
        name in "".join(table_lines(Table(columns, [(one, "1") for one in alike]), 44))
        for name in alike
    )


@given(
    st.lists(st.lists(st.text("xyz", max_size=9), min_size=3, max_size=3), max_size=5),
    st.integers(0, 40),
)
def test_no_text_is_ever_cut(lines: list[list[str]], width: int) -> None:
    columns = [Column("a", number=False), Column("b"), Column("c", spare=1)]
    shown = list(table_lines(Table(columns, lines), width))
    for line, printed in zip(lines, shown[1:], strict=False):
        assert [text for text in line[:2] if text] == printed.split()[: sum(map(bool, line[:2]))]
    words = " ".join(shown).split()
    assert all(text in words for line in lines for text in line if text)


# Placements


# Two layers of F = B = W = 1 on one device each are 6 per microbatch; a V or a loop of 2 on two
# devices has the same work, 2 x 2 x 3 x 4 = 48 with four microbatches, 24 on each device.


def test_problems_of_the_same_layers_are_in_one_table(
    cli: Run, save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layers = {"devices": 2, "microbatches": 4, "F": 1, "B": 1, "W": 1, "layers": 4}
    Problem.vee(**layers).write("v.json")
    Problem.loop(**layers).write("loop.json")
    Problem.chain(**layers).write("chain.json")
    given = ("v.json", "loop.json", "v.json", "zb-v", "chain.json")
    rows = cli("compare", *given, "--time-limit", 1, "--workers", 1, "--json").json
    assert all(row.keys() >= CONTRACT for row in rows)
    solved = {row["placement"]: row["makespan"] for row in rows if row["name"] == "solver"}
    assert [*solved] == ["vee", "loop of 2", "vee 2", "chain"]
    assert min(solved.values()) >= 24
    best = min(solved.values())
    for row in rows:
        assert not row["valid"] or row["ratio_to_best"] == row["makespan"] / best
    text = cli("compare", *given[:2], "--time-limit", 1, "--workers", 1).out
    assert re.search(r"^zb-v +vee +\d", text, re.MULTILINE)
    assert re.search(r"^solver +loop of 2 +\d", text, re.MULTILINE)
    assert "Work" not in text
    Problem.loop(**layers | {"B": 2}).write("other.json")
    text = cli("compare", "v.json", "other.json", "--time-limit", 1, "--workers", 1).out
    assert "differ: vee 48, loop of 2 64" in " ".join(text.split())
    Problem.loop(**layers | {"microbatches": 5}).write("five.json")
    error = cli("compare", "v.json", "five.json")
    assert error.code == 2
    assert "five.json: got 5, expected the number of microbatches of the first" in error.err


def test_two_routes_are_no_bidirectional_placement_as_such() -> None:
    """Both routes go from device 0 to device 1: no copy of the model in the other direction."""
    content = json.loads(json.dumps(chain(2, 2).document))
    content["stages"] *= 2
    content["routes"] = [{"stages": stages, "microbatches": 1} for stages in ([0, 1], [2, 3])]
    del content["microbatches"]
    options: dict[str, Any] = {"time_limit": 0.1, "workers": 1}
    found = compare(chain(2, 2), beside=[parse_problem(content)], **options)
    assert not dict(found.facts())["Weights"]


def test_placements_say_what_they_rest_on() -> None:
    options: dict[str, Any] = {"placements": True, "time_limit": 0.1, "workers": 1}
    found = pipesat.compare(chain(2, 2), layers_per_stage=2, **options)
    said = dict(found.facts())
    assert said["Weights"] == "bidirectional holds two copies of the model, others one"
    assert "halve a head or an embedding" in said["Basis"]
    (table,) = found.tables()
    assert table.notes == [
        "to best: the best of all rows. to bound: that of the row's own placement"
    ]


@pytest.mark.slow
def test_placements_carry_their_names(cli: Run, save: Any) -> None:
    options = ("--layers-per-stage", 2, "--time-limit", 2, "--workers", 1)
    outcome = cli("compare", save(chain(2, 4, F=2, B=2, W=2, held=(2, 2))), *options, "--json")
    assert outcome.code == 0
    found = [row["placement"] for row in outcome.json if row["name"] == "solver"]
    assert sorted(found) == ["bidirectional", "chain", "loop of 2", "vee"]
    assert all(row.keys() >= CONTRACT for row in outcome.json)
    valid = [row for row in outcome.json if row["valid"]]
    best = min(row["makespan"] for row in valid)
    for row in valid:
        assert row["ratio_to_best"] == row["makespan"] / best  # over all placements
        assert row["ratio_to_bound"] >= 1
    homes = {
        "1f1b": {"chain"},
        "zb-v": {"vee"},
        "chimera": {"bidirectional"},
        "list-scheduling": set(found),
    }
    for name, expected in homes.items():
        assert {row["placement"] for row in valid if row["name"] == name} == expected
    # F + B + W = 6 for 4 microbatches on each of 2 devices: no placement changes the load
    for row in valid:
        assert row["makespan"] >= 24


@pytest.mark.slow
def test_each_placement_has_a_folder(cli: Run, save: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = save(chain(2, 1))  # one microbatch: no two directions
    outcome = cli("compare", path, "--layers-per-stage", "3,2", "--time-limit", 2, "-o", out)
    assert outcome.code == 0
    assert {folder.name for folder in out.glob("[!.]*")} == {"chain", "loop-of-2", "vee"}
    for folder in out.glob("[!.]*"):
        problem, schedule = folder / "problem.json", folder / "schedule.json"
        assert cli("check", problem, schedule).code == 0
        assert json.loads((folder / "result.json").read_bytes())["schedule"] == str(schedule)
    assert f"Written to {out}" in " ".join(outcome.out.split())


def test_placements_start_from_a_chain(cli: Run, save: Any) -> None:
    outcome = cli("compare", save(vee(2, 2)), "--layers-per-stage", 2)
    assert (outcome.code, outcome.out) == (2, "")
    assert "one stage per device" in outcome.err


def test_no_stage_is_cut_that_may_not_divide(cli: Run, save: Any, tmp_path: Path) -> None:
    """A head of 706 on one of two devices takes 32 x 706 in any placement: it has no half."""
    head = document(chain(2, 32))
    head["stages"][1].update({"F": 353, "B": 300, "W": 53})
    path, out = save(head), tmp_path / "out"
    for options, words in (
        (["--layers-per-stage", "4,1"], ["--layers-per-stage", "stage 1", "got 1"]),
        (
            ["--layers-per-stage", "4,2,2"],
            ["--layers-per-stage", "3 numbers, expected 2"],
        ),
        (["--layers-per-stage", "some"], ["--layers-per-stage", "'some'"]),
    ):
        outcome = cli("compare", path, *options, "-o", out)
        assert (outcome.code, outcome.out) == (2, "")
        (line,) = outcome.err.splitlines()
        assert [word for word in words if word not in line] == []
        assert not out.exists() or not [*out.iterdir()]


# compare --list, and why a name does not apply


@pytest.mark.parametrize("width", [80, 200])
def test_the_list_of_baselines(cli: Run, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    outcome = cli("compare", "--list")
    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, outcome.out.splitlines())) <= width
    flat = re.sub(r"\s+", " ", outcome.out)
    for entry in BASELINES.values():
        (line,) = re.findall(rf"^{re.escape(entry.name)} .*", outcome.out, re.MULTILINE)
        words = line.split()
        assert words[2:4] == ["yes" if flag else "no" for flag in (entry.splits, entry.pairs)]
        assert entry.source.split()[0] in line
        assert entry.source in flat
    assert re.search(r"^1f1b +chain +no +no +Narayanan", outcome.out, re.MULTILINE)


def test_why_a_baseline_does_not_apply_names_it_and_the_file(
    cli: Run, save: Any, tmp_path: Path
) -> None:
    path = save(vee(2, 2))
    outcome = cli("export", path, "1f1b", "--to", "schedule", "-o", tmp_path / "s.json")
    reason = "needs exactly one stage per device"
    assert outcome == (2, "", f"pipesat: error: {path}: 1f1b does not apply: {reason}\n")
