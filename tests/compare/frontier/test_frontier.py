"""What memory buys: caps, the exchange between them, the smallest cap, the commands.

Optima of tiny problems come from the plain model in tests/oracle/exact.py, which shares nothing
with the solver.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.cli.terminal import print_answer
from pipesat.compare.frontier.capacities import (
    at_cap,
    attainable,
    choose_caps,
    least_feasible_cap,
    readable_caps,
    rounded_down,
    scale_of,
)
from pipesat.compare.frontier.curve import Curve
from pipesat.compare.frontier.frontiers import Frontiers
from pipesat.compare.frontier.least_memory import least_memory
from pipesat.compare.frontier.points import Frontier, _row, trace
from pipesat.compare.frontier.solves import Study
from pipesat.compare.hand_written import published
from pipesat.core.claims import Bound
from pipesat.core.errors import BadInput, Fault
from pipesat.core.folder import write_folder
from pipesat.core.settings import PICTURES
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.result import Baseline
from pipesat.schedule.schedule import Schedule
from pipesat.schedule.schedule_file import read_schedule
from pipesat.solver import SolveOptions
from tests.conftest import Run
from tests.oracle.exact import optimum
from tests.support.interrupted import interrupted
from tests.support.problems import chain, document, loop, vee
from tests.support.problems import document as document_of

Save = Callable[..., Path]

SMALL = chain(2, 3)  # held (1, 1): what a device holds are whole numbers
ALONE = SolveOptions(time_limit=60, workers=1)


_OPTIMA: dict[str, float] = {}


def best_of(problem: Problem) -> float:
    """Least makespan; infinite where nothing fits."""
    if problem.sha256 not in _OPTIMA:
        found = optimum(document(problem))
        _OPTIMA[problem.sha256] = math.inf if found is None else found
    return _OPTIMA[problem.sha256]


def traced(problem: Problem, **options: Any) -> Frontier:
    return trace(problem, ALONE, baselines=published(), **options)


# Caps


def test_a_cap_replaces_all_capacities_and_keeps_the_static_part() -> None:
    doc = document_of(SMALL, devices=[{"memory": 7, "static": 2, "name": "a"}, {"memory": None}])
    problem = at_cap(parse_problem(doc), 5)
    assert [(d.memory, d.static, d.name) for d in problem.devices] == [(5, 2, "a"), (5, 0, "")]
    assert [d.memory for d in at_cap(problem, None).devices] == [None, None]
    assert problem.stages == SMALL.stages
    # static + one microbatch: 2 + 1 on the first device, 0 + 1 on the second
    assert least_feasible_cap(problem) == 3


def test_1f1bs_measure_is_the_same_for_all_placements_of_the_layers() -> None:
    # 1F1B holds min(p, m) = 4 microbatches of 2 units on the first of 4 devices
    wanted = (0, 8)
    for problem in (chain(4, 8, held=(2, 1)), vee(4, 8), loop(4, 2, 8)):
        scale = scale_of(problem)
        assert scale is not None
        assert (scale.static, scale.activations) == wanted
    assert scale.cap(Fraction(3, 4)) == 6
    assert scale.share(12) == 1.5
    # from the largest static part on
    doc = document_of(chain(2, 4, held=(10, 5)), devices=[{"static": 3}, {"static": 7}])
    scale = scale_of(parse_problem(doc))
    assert scale is not None
    assert scale.cap(Fraction(1)) == 7 + 2 * 10
    few = parse_problem(document_of(chain(1, 4), devices=[{}, {}]))
    assert scale_of(few) is scale_of(chain(2, 4, held=(0, 0))) is None


def test_what_can_be_held() -> None:
    # n, k <= 2: 3 n + 2 k
    problem = chain(1, 2, held=(3, 2))
    assert attainable(problem, 100) == [0, 2, 3, 4, 5, 6, 7, 8, 10]
    assert attainable(problem, 5) == [0, 2, 3, 4, 5]
    assert rounded_down(attainable(problem, 100), 9) == 8
    # too many: multiples of their divisor; 10002 = 2 * 3 * 1667, only 2 divides 1000006
    doc = document_of(chain(2, 4000, held=(1_000_006, 10_002)), devices=[{}, {}])
    amounts = attainable(parse_problem(doc), 10**9)
    assert isinstance(amounts, range)
    assert amounts.step == 2


def test_caps_are_chosen_at_whole_activations() -> None:
    assert choose_caps(chain(4, 8, held=(10, 5)), 70, 7) == [10, 20, 30, 40, 50, 60, 70]
    # more of them come from what can be held: 10 n + 4 k from 10 to 20 with n, k <= 2
    assert choose_caps(chain(2, 2, held=(10, 4)), 20, 99) == [10, 14, 18, 20]
    # those asked for are among them; 20 halves 10 to 55 better than 30 does, in ratio
    assert choose_caps(chain(4, 8, held=(10, 5)), 70, 4, [55, 80]) == [10, 20, 55, 70]


def test_given_caps() -> None:
    problem = chain(4, 8, held=(10, 5))
    assert readable_caps(problem, [Fraction(1, 2), 35, Fraction(1, 2)]) == [20, 35]
    with pytest.raises(BadInput, match="at least 10"):
        readable_caps(problem, [9])
    with pytest.raises(BadInput, match="no share"):
        readable_caps(chain(2, 2, held=(0, 0)), [Fraction(1)])


# The exchange


def test_a_schedule_counts_from_its_peak_on_and_a_bound_up_to_its_cap() -> None:
    curve = Curve(chain(2, 3), "makespan")
    known = curve.know(BASELINES["1f1b"](curve.problem))  # peaks 2 and 1
    assert (known.peaks, known.peak) == ((2, 1), 2)
    assert [curve.value(cap) for cap in (1, 2, 3, None)] == [None, *[known.value] * 3]
    curve.prove(3, Bound(5, "three"))
    curve.prove(None, Bound(4, "unlimited"))
    found = [curve.bound(cap) for cap in (2, 3, 4, None)]
    assert [bound and bound.value for bound in found] == [5, 5, 4, 4]
    assert found[0] == Bound(5, "three, with cap 3")
    assert found[2] == Bound(4, "unlimited, with unlimited memory")
    assert found[3] == Bound(4, "unlimited")
    curve.prove(1, Bound(4, "one"))  # that of more memory is better
    assert curve.bound(1) == Bound(5, "three, with cap 3")


@pytest.mark.parametrize("first", ["schedule", "bound"])
def test_a_bound_above_a_schedule_is_dropped_and_told(first: str) -> None:
    curve = Curve(chain(2, 3), "makespan")
    schedule = BASELINES["1f1b"](curve.problem)
    value = 12  # (m + p - 1) (F + B + W), with two microbatches held on the first device
    if first == "schedule":
        assert curve.know(schedule).value == value
    curve.prove(1, Bound(value + 1, "with less than its peak"))
    curve.prove(2, Bound(value + 1, "wrong"))
    if first == "bound":
        assert curve.bound(2) == Bound(value + 1, "wrong")
        assert curve.know(schedule).value == value
    assert curve.contradictions == [
        f"wrong says at least {value + 1}, but a checked schedule has {value} with cap 2"
    ]
    assert (curve.bound(1), curve.bound(2)) == (Bound(value + 1, "with less than its peak"), None)
    assert (curve.standing(1).status, curve.standing(2).status) == ("unknown", "feasible")


def test_an_invalid_schedule_is_a_fault() -> None:
    problem = chain(2, 3)
    schedule = BASELINES["1f1b"](problem)
    with pytest.raises(Fault):
        Curve(problem, "makespan").know(Schedule((schedule.devices[0][:-1], schedule.devices[1])))


# The frontier


@pytest.mark.slow
@pytest.mark.parametrize("problem", [SMALL, chain(2, 3, F=2, W=3, held=(2, 1)), vee(2, 2)])
def test_every_point_is_the_optimum_at_its_cap(problem: Problem) -> None:
    caps = [cap for cap in attainable(problem, 8) if cap >= least_feasible_cap(problem)]
    for row in traced(problem, caps=caps).rows:
        assert row.known is not None
        assert row.bound is not None
        assert row.standing.status == "optimal"
        assert row.known.value == row.bound.value == best_of(at_cap(problem, row.cap))
        assert not check(at_cap(problem, row.cap), row.known.schedule)


def test_the_caps_end_where_memory_stops_to_matter() -> None:
    frontier = traced(SMALL)
    *_, last, unlimited = frontier.rows
    assert last.cap is not None
    assert best_of(at_cap(SMALL, last.cap)) == best_of(SMALL)
    assert best_of(at_cap(SMALL, last.cap - 1)) > best_of(SMALL)
    assert unlimited.cap is None
    assert frontier.rows[0].cap == least_feasible_cap(SMALL)


def test_a_hand_written_schedule_found_for_more_memory_counts_where_it_fits() -> None:
    """1F1B met at 6 needs 3: at 3 it is the best hand-written one, too."""
    problem = chain(3, 6, cap=6)
    made = BASELINES["1f1b"](problem)
    study = Study.begun(problem, SolveOptions(), None, [made])
    assert [one.peak for one in study.curve.schedules] == [3]
    study.baselines[6] = Baseline("1f1b", made.makespan)
    row = _row(study, 3)
    assert row.baseline == Baseline("1f1b", made.makespan)


def test_without_time_what_is_unknown_is_none() -> None:
    stop = threading.Event()
    stop.set()
    frontier = trace(chain(2, 3), replace(ALONE, stop=stop), caps=[1])
    row = frontier.rows[0]
    assert (row.known, row.standing.status, row.baseline) == (None, "unknown", None)
    assert row.bound is not None  # the closed form
    assert [cap for cap, _ in frontier.curve.bounds] == [None]  # nothing else was worked out
    found = Frontiers({None: frontier})
    point = found.document()["curves"][0]["points"][0]
    assert [point[key] for key in ("value", "gap", "schedule", "peak_memory")] == [None] * 4
    assert found.pictures()["frontier.png"].startswith(b"\x89PNG")
    print_answer(found)
    chosen = trace(chain(2, 3), replace(ALONE, stop=stop))
    assert [row.cap for row in chosen.rows] == [1, None]  # where more is no use is not known


# The smallest cap


@pytest.mark.parametrize("within", [Fraction(0), Fraction(1, 10), Fraction(1)])
@pytest.mark.parametrize("problem", [SMALL, chain(2, 2, F=2, held=(2, 1))])
def test_the_smallest_cap_by_the_plain_model(problem: Problem, within: Fraction) -> None:
    found = least_memory(problem, ALONE, within=within)
    best = best_of(problem)
    target = int(best * (1 + within))
    feasible = [cap for cap in attainable(problem, 6) if cap >= least_feasible_cap(problem)]
    smallest = min(cap for cap in feasible if best_of(at_cap(problem, cap)) <= target)
    assert found.best.value == best
    cap, known = found.interval, found.known
    assert cap is not None
    assert (cap.target, found.cap, cap.proven) == (target, smallest, True)
    assert known is not None
    assert known.value <= target
    assert not check(at_cap(problem, smallest), known.schedule)


def test_a_sequence_may_need_less_than_it_holds_in_one_plain_order() -> None:
    """Both slices hold 3 on the first stage: 6. The last stage takes no time and holds nothing."""
    stages = [
        {"device": 0, "F": 1, "B": 1, "W": 0, "held_after_F": 3},
        {"device": 0, "F": 0, "B": 0, "W": 0, "held_after_F": 5},
    ]
    routes = [{"stages": [0, 1], "microbatches": 2, "slices": 2}]
    one = {"format": "pipesat.problem/1", "devices": [{}], "stages": stages, "routes": routes}
    problem = parse_problem(one)
    assert readable_caps(problem, [6]) == [6]
    found = least_memory(problem, ALONE)
    assert found.interval is not None
    assert (found.cap, found.interval.proven) == (6, True)


def test_undecided_caps_are_counted() -> None:
    curve = Curve(chain(2, 6), "makespan")
    curve.know(BASELINES["gpipe"](curve.problem))  # holds 6
    target = 10**6
    curve.prove(2, Bound(3, "below the target"))
    amounts = [1, 2, 3, 4, 5, 6]
    assert curve.interval(amounts, target).undecided == 5
    slow = curve.interval(amounts, curve.value(None) or 0)
    assert (slow.enough, slow.too_little, slow.proven) == (6, None, False)
    value = curve.value(None) or 0
    curve.prove(5, Bound(value, "not above"))
    assert curve.interval(amounts, value).undecided == 5
    assert curve.interval(amounts, value - 1).enough is None
    assert curve.interval(amounts, value - 1).too_little == 5
    assert curve.interval(amounts, value - 1).undecided == 1


def test_a_capacity_that_only_a_solve_refutes() -> None:
    # F takes no time; keep holds 3 while BW runs, recompute 3 in BW: below 3 nothing fits, though
    # the least of both modes needs nothing
    again = {"name": "recompute", "BW": 1, "held_after_F": 0, "held_in_backward": 3}
    stage = {"device": 0, "F": 0, "B": 1, "W": 0, "backward": "fused", "held_after_F": 3}
    problem = parse_problem(
        document_of(chain(1, 2), stages=[stage | {"modes": [again]}], devices=[{}])
    )
    rows = {row.cap: row.standing.status for row in traced(problem, caps=[0, 2, 3]).rows}
    assert rows == {0: "infeasible", 2: "infeasible", 3: "optimal", None: "optimal"}
    least = least_memory(problem, replace(ALONE, time_limit=3))
    assert least.interval is not None
    assert (least.cap, least.interval.proven) == (3, True)


def test_the_files_capacities_as_reference() -> None:
    # one microbatch at a time: (F + B) on both devices each, and the first one's last W
    slow = chain(2, 3, cap=1)
    found = least_memory(slow, ALONE, within=Fraction(0), reference="file")
    assert found.best.value == best_of(slow)
    assert found.cap == 1
    # what came before it, hand-written schedules say, may have taken all of the time
    found = least_memory(slow, replace(ALONE, time_limit=1e-9), reference="file")
    assert found.best.value is not None


# Pictures and tables


# The commands


@pytest.mark.slow
def test_frontier_writes_what_check_accepts(cli: Run, save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_folder(folder, {"caps/77/schedule.json": b"of an earlier run"})
    limits = ("--caps", "1,1f1b", "--time-limit", 30)
    outcome = cli("frontier", save(chain(2, 3)), *limits, "-o", folder, "--json")
    assert outcome.code == 0
    (curve,) = outcome.json["curves"]
    assert [point["cap"] for point in curve["points"]] == [1, 2, None]
    assert not (folder / "caps" / "77").exists()
    for point in curve["points"]:
        assert cli("check", point["problem"], point["schedule"]).code == 0
        problem = read_problem(point["problem"])
        assert read_schedule(point["schedule"], problem).makespan == point["value"]
    written = {path.name for path in folder.glob("[!.]*")}
    assert written == {
        "frontier.json",
        "frontier.csv",
        *(f"frontier.{kind}" for kind in PICTURES),
        "caps",
    }
    assert json.loads((folder / "frontier.json").read_text())["curves"] == outcome.json["curves"]


def test_show_says_what_a_curves_figures_are_in(cli: Run, save: Save, tmp_path: Path) -> None:
    save({"time_unit": "us", "memory_unit": "MiB"}, "frontier.json")
    save("cap,value,lower_bound,gap\n100,96789,95789,0.01\nunlimited,9,9,0.0\n", "frontier.csv")
    rows = [line.split("  ") for line in cli("show", tmp_path).out.splitlines()[-2:]]
    first, last = ([cell.strip() for cell in row if cell.strip() not in ("", "-")] for row in rows)
    assert first == ["100 MiB", "96.79 ms", "95.78 ms", "1.00 %"]
    assert last == ["unlimited", "0.009 ms", "0.009 ms", "0 %"]


def test_a_schedule_at_every_cap_however_short_the_time() -> None:
    """One microbatch after the other is always there; solve says it, too."""
    no_time = replace(ALONE, time_limit=0.001)
    assert None not in [row.known for row in trace(SMALL, no_time).rows]
    assert least_memory(SMALL, no_time, within=Fraction(0)).cap is not None


def test_min_memory(cli: Run, save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    outcome = cli("frontier", save(SMALL), "--within", "0%", "-o", folder, "--json")
    assert outcome.code == 0
    result = outcome.json
    assert result["format"] == "pipesat.least-memory/1"
    smallest = min(c for c in (1, 2, 3, 4, 5, 6) if best_of(at_cap(SMALL, c)) == best_of(SMALL))
    assert (result["status"], result["cap"]) == ("optimal", smallest)
    assert result["largest_too_little"] in (None, smallest - 1)
    assert cli("check", folder / "problem.json", folder / "schedule.json").code == 0
    written = {path.name for path in folder.glob("[!.]*")}
    assert written == {"problem.json", "schedule.json", "gantt.png", "result.json"}
    assert (result["time_unit"], result["memory_unit"]) == ("", "")
    in_gib = save(SMALL.document | {"memory_unit": "GiB"}, "gib.json")
    text = cli("frontier", in_gib, "--within", "0%")
    assert f"{smallest} GiB on every device" in text.out
    assert f"Sum of peaks  {result['sum_of_peaks']} GiB within" in text.out
    assert "proven smallest" in text.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frontier", "--caps", "0"], ["--caps", "got 0", "at least 1"]),
        (["frontier", "--caps", "1,half"], ["--caps", "'half'"]),
        (["frontier", "--caps", "1f1b*9999999999"], ["--caps"]),
        (["frontier", "--placement", "vee,star"], ["--placement", "star", "bidirectional"]),
        (["frontier", "--caps", "points=1"], ["--caps points"]),
        (["frontier", "--time-limit", "0"], ["above 0"]),
        (["frontier", "--within", "five"], ["--within", "'five'", "5%"]),
        (["frontier", "--within", "-5%"], ["--within"]),
        (["frontier", "--capacity-of", "half"], ["--capacity-of"]),
    ],
)
def test_bad_input(cli: Run, save: Save, arguments: list[str], words: list[str]) -> None:
    outcome = cli(arguments[0], save(chain(2, 3)), *arguments[1:])
    assert outcome.code == 2
    assert outcome.out == ""
    for word in words:
        assert word in outcome.err


def test_a_folder_that_cannot_be_written(cli: Run, save: Save, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words in ([], ["--within", "5%"]):
        outcome = cli("frontier", *words, save(chain(2, 3)), "-o", tmp_path / "file" / "out")
        assert outcome.code == 2
        assert "cannot write" in outcome.err


def test_an_infeasible_reference(cli: Run, save: Save) -> None:
    problem = chain(2, 3, cap=1, held=(2, 1))
    least = (save(problem), "--within", "5%")
    assert cli("frontier", *least, "--capacity-of", least[0]).code == 3
    assert cli("frontier", *least).code == 0
    in_gib = save(problem.document | {"memory_unit": "GiB"}, "gib.json")
    assert "--capacity-of: got 'GiB'" in cli("frontier", *least, "--capacity-of", in_gib).err


@pytest.mark.slow
def test_an_interrupt_keeps_the_curve_so_far(save: Save, tmp_path: Path) -> None:
    # too large to be proven in no time
    problem = save(chain(8, 32, F=30, B=29, W=20, held=(10, 4)))
    options = ("-o", tmp_path / "out", "--json", "--workers", 1)
    (curve,) = interrupted("frontier", problem, *options, after="cap ")["curves"]
    assert len(curve["points"]) > 2
    assert (tmp_path / "out" / "frontier.png").exists()
