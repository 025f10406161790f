"""Deals to replicas: their replay, rules, search, dealer and files."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipesat
from pipesat.compare.replicas.deal import Load, deal_of
from pipesat.compare.replicas.dealer import Dealer, checked_load, replay_of, searched
from pipesat.compare.replicas.dealing_rules import RULES, differencing
from pipesat.compare.replicas.replay import costs_of_lengths, costs_of_list, problem_of
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.timing import time_order
from tests.conftest import Run

CHANCE = np.random.default_rng(7)
LENGTHS = [int(n) for n in CHANCE.integers(200, 4000, 60)]


def chain(m: int = 4, p: int = 3, **more: Any) -> pipesat.Problem:
    return pipesat.Problem.chain(p, m, F=100, B=120, W=80, held_after_F=50, comm=7, **more)


def load(replicas: int = 3, cap: int | None = None, m: int = 4, lengths: Any = LENGTHS) -> Load:
    problem = chain(m)
    costs = costs_of_lengths(problem, lengths, 1000, 0.25)
    return checked_load(replay_of(problem, "1f1b", m), costs, lengths, cap, replicas)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "eager-1f1b", "1f1b-overlapped"])
def test_a_replay_times_what_the_schedule_does(name: str) -> None:
    """Beside timing and memory of single problems, which have the costs outright."""
    problem = chain(6, memory=10**6, held_after_B=20)
    try:
        replay = replay_of(problem, name, 6)
    except NotApplicable:
        assert name == "1f1b-overlapped"
        return
    cases = [costs_of_lengths(problem, LENGTHS[6 * k : 6 * k + 6], 1000, 0.5) for k in range(8)]
    costs = np.stack(cases)[:, :, replay.columns].transpose(2, 1, 0)
    for makespan, own in zip(replay.makespans(costs), cases, strict=True):
        one = problem_of(problem, own)
        timed = BASELINES[name](one)
        assert pipesat.check(one, timed) == []
        assert makespan == timed.makespan == time_order(one, timed.order).makespan
    peaks = peak_memory(one, BASELINES[name](one))
    slack = 10**6 + replay.excess(costs[:, :, -1:] * 10**6)[0]
    assert slack == 10**6 * max(peaks)


def test_a_class_may_have_its_delays_outright() -> None:
    """The sum of two sequences' delays, 3 + 5 there and 4 + 6 back, on one link."""
    problem = pipesat.Problem.chain(2, 1, F=1, B=1, W=1, comm=2)
    costs = np.array([[1, 1, 1, 2, 0, 0, 0, 8, 10, 1, 1, 1, 2, 0, 0, 0, 0, 0]])
    one = problem_of(problem, costs)
    timed = BASELINES["1f1b"](one)
    assert timed.makespan == 1 + 8 + 1 + 2 + 10 + 2
    assert pipesat.check(one, timed) == []
    first, second = timed.devices
    early = tuple(op._replace(start=op.start - 1, end=op.end - 1) for op in second)
    assert pipesat.check(one, pipesat.Schedule((first, early), "too early"))


@pytest.mark.parametrize("cap", [None, 14_000])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_deals_all_once(name: str, cap: int | None) -> None:
    own = load(cap=cap)
    if cap is None and name in ("Megatron", "torchtitan"):
        with pytest.raises(NotApplicable, match="most tokens"):
            RULES[name](own)
        return
    replicas = RULES[name](own)
    assert [len(row) for row in replicas] == [4, 4, 4]
    assert sorted(n for row in replicas for part in row for n in part) == [*range(60)]
    deal = deal_of(own, replicas)
    assert deal.replicas == [[sorted(part) for part in row] for row in replicas]
    if name in ("Megatron", "torchtitan"):
        assert deal.fits


def test_rules_do_what_their_sources_say() -> None:
    whole = load(2, m=3, lengths=[6, 5, 4, 3, 2, 1])
    # the longest first, in turn: replica 0 has 6, 4, 2
    assert RULES["dealt in turn"](whole) == [[[0], [2], [4]], [[1], [3], [5]]]
    # small ones at both ends: of 6, 4, 1 descending every other backwards, then the others
    assert RULES["verl"](load(1, m=3, lengths=[6, 4, 1])) == [[[2], [0], [1]]]
    # next fit of at most 5 is [0, 1], [2], [3], [4], which go to replicas in turn
    packed = load(2, cap=5, m=2, lengths=[3, 2, 4, 5, 1])
    assert RULES["Megatron"](packed) == [[[0, 1], [3]], [[2], [4]]]
    # at most 9 is [0, 1, 2], [3, 4]; the last two, then 2 of the first, become microbatches
    packed = load(2, cap=9, m=2, lengths=[3, 2, 4, 5, 1])
    assert RULES["Megatron"](packed) == [[[0, 1], [4]], [[3], [2]]]
    # first fit of 5, 4, 3, 2, 1 in 9 is [5, 4], [3, 2, 1]: squares 41 and 14; 41 is split, then 14
    assert RULES["torchtitan"](packed) == [[[3], [0]], [[2], [1, 4]]]
    assert RULES["torchtitan"](whole) == RULES["dealt in turn"](whole)
    numbers = np.array([8, 7, 6, 5, 4])  # theirs: the differences are 1, 1, 4 and in the end 2
    sums = [sum(numbers[part]) for part in differencing(numbers, 2, equal=False)]
    assert sorted(sums) == [14, 16]


@pytest.mark.parametrize(
    ("replicas", "cap", "memory"), [(3, None, None), (3, 12_500, 2900), (1, None, None)]
)
def test_a_search_is_no_worse_than_any_rule_and_keeps_its_books(
    replicas: int, cap: int | None, memory: int | None
) -> None:
    problem = chain(memory=memory)
    costs = costs_of_lengths(problem, LENGTHS, 1000, 0.25)
    own = checked_load(replay_of(problem, "1f1b", 4), costs, LENGTHS, cap, replicas)
    start = deal_of(own, RULES["as given"](own))
    before, left = start.value, iter(range(150))
    found = searched(start, np.random.default_rng(1), lambda: next(left, None) is None)
    again = deal_of(own, found.replicas)
    assert (again.values == found.values).all()
    assert sorted(n for row in found.replicas for part in row for n in part) == [*range(60)]
    assert found.value < before
    assert found.fits


def test_a_dealer_is_the_same_everywhere_and_needs_no_solver() -> None:
    dealer = Dealer(chain(), 3, reference=1000, quadratic=0.25, tokens=14_000)
    one, other = (dealer.deal(LENGTHS, seed=5, rounds=20) for _ in range(2))
    assert one.replicas == other.replicas
    assert one.fits
    assert sorted(n for row in one.replicas for part in row for n in part) == [*range(60)]
    rules = [deal_of(one.load, rule(one.load)) for rule in RULES.values()]
    assert one.value <= min(deal.value for deal in rules if deal.fits)
    assert dealer.deal(np.array(LENGTHS), rounds=1).fits  # type: ignore[arg-type]
    script = (
        "import sys, pipesat; from pipesat.compare.replicas.dealer import Dealer;"
        "d = Dealer(pipesat.Problem.chain(2, 2, F=3, B=3, W=3), 2, reference=4);"
        "d.deal([4, 2, 7, 5, 1]); print([m for m in ('ortools', 'torch') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_what_is_refused() -> None:
    problem, options = chain(), {"reference": 1000, "replicas": 3}
    listed = problem.with_microbatches([{"name": "a", "count": 5}, {"name": "b", "count": 2}])
    two = pipesat.Problem.two_routes(2, 4, F=1, B=1, W=1)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (problem, {"lengths": LENGTHS[:11], **options}, "11 sequences, expected at least 12"),
        (problem, {"lengths": [*LENGTHS, 9000], "tokens": 8000, **options}, "at most 8000 tokens"),
        (problem, {"lengths": [], **options}, "at least one length"),
        (problem, {"lengths": [*LENGTHS, float("nan")], **options}, "integer"),
        (problem, {"lengths": [*LENGTHS, 0], **options}, "integer from 1"),
        (problem, {"lengths": LENGTHS, "replicas": 3}, "length that the stages' costs are of"),
        (problem, {"lengths": LENGTHS, **options, "schedules": ["none"]}, "expected one of"),
        (problem, {"lengths": LENGTHS, **options, "schedules": ["1f1b", "gpipe"]}, "expected one,"),
        (problem, {"lengths": LENGTHS, **options, "objective": "span"}, "they end together"),
        (problem, {"replicas": 3}, "expected a list of all"),
        (problem, {"replicas": 3, "tokens": 8}, "go with them"),
        (listed, {"replicas": 3}, "7 microbatches, expected a multiple of 3"),
        (listed, {"lengths": LENGTHS, **options}, "expected how many a replica has"),
        (two, {"lengths": LENGTHS, **options}, "one route"),
    ]
    for given, keywords, message in wrong:
        with pytest.raises(BadInput, match=message):
            pipesat.balance(given, **keywords)
    for name in ("list-scheduling", "zb-v"):
        with pytest.raises(NotApplicable):
            pipesat.balance(problem, lengths=LENGTHS, schedules=[name], **options)  # type: ignore[arg-type]


def test_what_cannot_fit_is_proven(cli: Run, tmp_path: Path) -> None:
    # one of 4000 tokens holds 200, the others 5 each
    lengths = [100] * 11 + [4000]
    with pytest.raises(Infeasible, match="sequence 11 does not fit into memory at any place"):
        pipesat.balance(chain(memory=60), lengths=lengths, reference=1000, replicas=3)
    with pytest.raises(Infeasible, match="do not fit into 12 microbatches of 4000"):
        pipesat.balance(chain(), lengths=LENGTHS, reference=1000, replicas=3, tokens=4000)
    with pytest.raises(Infeasible, match="more than half"):
        pipesat.balance(chain(1, 2), lengths=[6, 6, 6, 1], reference=9, replicas=2, tokens=10)
    # 1F1B's first of three ranks holds microbatches 0 to 2, then 3 alone: two instants for all four
    total = int(costs_of_lengths(chain(), LENGTHS, 1000, 0)[:, 4].sum())
    with pytest.raises(Infeasible, match=f"holds {total} for all sequences"):
        pipesat.balance(chain(memory=total // 6 - 1), lengths=LENGTHS, reference=1000, replicas=3)
    # with 5 more, microbatches 1 and 2, which are in both instants, could hold 10 together, not 20
    chain(memory=-(-total // 6) + 5).write(tmp_path / "p.json")
    (tmp_path / "l.json").write_text(json.dumps(LENGTHS))
    words = ("--lengths", tmp_path / "l.json", "--reference", 1000, "--replicas", 3)
    ran = cli("balance", tmp_path / "p.json", *words, "--time-limit", 0.3, "-o", tmp_path / "out")
    assert ran.code == 1
    assert "no assignment was found that fits" in ran.err
    assert not (tmp_path / "out" / "assignment.json").exists()


def test_the_command_writes_an_assignment(cli: Run, tmp_path: Path) -> None:
    problem = chain(time_unit="ms")
    problem.write(tmp_path / "p.json")
    (tmp_path / "l.json").write_text(json.dumps(LENGTHS))
    words = ("--lengths", tmp_path / "l.json", "--reference", 1000, "--quadratic", 0.25)
    words += ("--replicas", 3, "--tokens", 14_000, "--time-limit", 0.5, "-o", tmp_path / "out")
    ran = cli("balance", tmp_path / "p.json", *words)
    assert ran.code == 0
    assert "this assignment" in ran.out
    assert "mean replica under 1f1b" in " ".join(ran.out.split())
    written = json.loads((tmp_path / "out" / "assignment.json").read_text())
    assert [*written] == [
        *("format", "problem_sha256", "schedule", "lengths", "replicas", "objective", "value"),
        *("lower_bound", "lower_bound_source", "gap", "makespans", "seed", "time_unit"),
    ]
    assert "slowest replica (ms)" in ran.out
    shown = cli("show", tmp_path / "out" / "assignment.json").out
    assert f"{written['value']} ms under 1f1b" in shown
    assert written["problem_sha256"] == problem.sha256
    assert written["lengths"]["tokens"] == 14_000
    assert written["lengths"]["quadratic"] == 0.25
    assert max(written["makespans"]) == written["value"] >= written["lower_bound"]
    costs = costs_of_lengths(problem, LENGTHS, 1000, 0.25)
    for makespan, row in zip(written["makespans"], written["replicas"], strict=True):
        own = problem_of(problem, np.array([costs[part].sum(axis=0) for part in row]))
        assert BASELINES["1f1b"](own).makespan == makespan
    said = json.loads(cli("balance", tmp_path / "p.json", *words, "--json").out)
    assert {"any_schedule", "rules", "status"} <= said.keys()
    values = [row["value"] for row in said["rules"] if row["value"] is not None]
    assert said["value"] <= min(values)
    assert said["any_schedule"]["lower_bound"] <= said["value"]


def test_whole_microbatches_of_a_list_are_dealt(cli: Run, tmp_path: Path) -> None:
    """Measured costs; one replica of them is the order of section 8, and solve takes it."""
    entries = [
        {"name": str(n), "count": 1, "stages": {"0": {"F": n, "BW": 2 * n}, "1": {"F": n + 3}}}
        for n in (40, 90, 20, 70, 60, 30)
    ]
    problem = chain(1, 2).with_microbatches(entries)
    found = pipesat.balance(problem, replicas=2, time_limit=0.3)
    assert found.lengths is None
    assert sorted(part[0] for row in found.replicas for part in row) == [*range(6)]
    assert {len(part) for row in found.replicas for part in row} == {1}
    costs = costs_of_list(problem)
    assert costs[1, :4].tolist() == [90, 120, 80, 180]
    assert found.value == max(
        BASELINES["1f1b"](problem_of(problem, costs[[p[0] for p in row]])).makespan
        for row in found.replicas
    )
    problem.write(tmp_path / "p.json")
    words = ("--replicas", 1, "--time-limit", 0.3, "-o", tmp_path / "out")
    assert cli("balance", tmp_path / "p.json", *words).code == 0
    written = json.loads((tmp_path / "out" / "assignment.json").read_text())
    ordered = pipesat.Problem.read(tmp_path / "out" / "problem.json")
    assert ordered.order == "given"
    assert BASELINES["1f1b"](ordered).makespan == written["value"]


def test_assignments_are_read_and_shown(cli: Run, tmp_path: Path) -> None:
    found = pipesat.balance(chain(), lengths=LENGTHS, reference=1000, replicas=3, time_limit=0.2)
    found.save(tmp_path / "out")
    path = tmp_path / "out" / "assignment.json"
    again = pipesat.read(path)
    assert again.file() == found.file()  # type: ignore[union-attr]
    shown = cli("show", path)
    assert (shown.code, cli("show", tmp_path / "out").out) == (0, shown.out)
    assert f"{found.value} under 1f1b" in shown.out
    document = json.loads(path.read_text())
    for key, value, message in (
        ("replicas", [[[0, 1]], [[1, 2]]], "exactly once"),
        ("replicas", [[[0]], [[1], [2]]], "same number"),
        ("replicas", [[[0]], [[]]], "replicas"),
        ("value", 1, "largest of makespans"),
        ("lower_bound", found.value + 1, f"at most the value {found.value}"),
        ("seed", "1", "seed"),
    ):
        path.write_text(json.dumps(document | {key: value}))
        with pytest.raises(BadInput, match=message):
            pipesat.read(path)


def test_the_checker_judges_an_assignment(cli: Run, tmp_path: Path) -> None:
    """Written by hand: one device takes 300 and holds 50 for each 1000 tokens, one at a time."""
    problem = chain(2, 1, memory=200)
    lengths = [1000, 2000, 3000, 4000]
    sha256 = hashlib.sha256(json.dumps(lengths).encode()).hexdigest()
    about = {"sha256": sha256, "reference": 1000, "quadratic": 0.0, "tokens": 4000}
    right = {
        "format": "pipesat.assignment/1",
        "problem_sha256": problem.sha256,
        "schedule": "1f1b",
        "lengths": about,
        "replicas": [[[0], [3]], [[1], [2]]],
        "value": 1500,
        "lower_bound": 1500,
        "lower_bound_source": "by hand",
        "gap": 0.0,
        "makespans": [1500, 1500],
        "seed": 0,
    }
    lists = {"format": "pipesat.problem/1", "devices": [{"memory": 199}]} | {
        "stages": [{"device": 0, "F": 100, "B": 120, "W": 80, "held_after_F": 50}],
        "microbatches": [
            {"name": str(n), "count": 1} | {key: [n, 1] for key in ("time", "held")}
            for n in (1, 2, 3, 4)
        ],
    }  # the same without lengths, and short of memory by one
    short = parse_problem(lists)
    for given, changes, code, said in (
        (problem, {}, 0, "Valid"),
        (problem, {"makespans": [1500, 1400]}, 1, "replica 1: it takes 1500, the assignment says"),
        (problem, {"lengths": about | {"tokens": 3500}}, 1, "a microbatch of 4000 tokens, at most"),
        (problem, {"replicas": [[[0], [1]]], "makespans": [1500]}, 1, "2 sequences in 2 microbatc"),
        (problem, {"replicas": [[[0, 1, 2, 3]]], "makespans": [1500]}, 1, "expected 4 in 2"),
        (problem, {"lengths": about | {"sha256": "0"}}, 2, "--lengths: expected the lengths that"),
        (problem, {"schedule": "none"}, 2, "a.json: schedule: got 'none', expected one of"),
        (short, {"lengths": None, "problem_sha256": short.sha256}, 1, "memory: replica 0: "),
        (short, {}, 2, "a.json: problem_sha256"),
    ):
        given.write(tmp_path / "p.json")
        (tmp_path / "a.json").write_text(json.dumps(right | changes))
        (tmp_path / "l.json").write_text(json.dumps(lengths))
        ran = cli(
            "check", tmp_path / "p.json", tmp_path / "a.json", "--lengths", tmp_path / "l.json"
        )
        text = " ".join((ran.out + ran.err).split())
        assert (ran.code, said in text) == (code, True), (said, text)
    refused = cli("check", tmp_path / "p.json", tmp_path / "a.json", "--runtime", "group")
    assert (refused.code, "not with an assignment" in refused.err) == (2, True)


@pytest.mark.parametrize(("replicas", "m"), [(1, 1), (5, 1), (1, 4)])
def test_one_replica_or_one_microbatch(replicas: int, m: int) -> None:
    """With one microbatch each, a chain of one device takes its work: 300 for each 1000 tokens."""
    problem, options = pipesat.Problem.chain(1, m, F=100, B=100, W=100), {"reference": 1000}
    lengths = [1000 * (1 + n % 3) for n in range(30)]  # 60,000 in all
    found = pipesat.balance(
        problem,
        lengths=lengths,
        replicas=replicas,
        time_limit=0.3,
        **options,  # type: ignore[arg-type]
    )
    assert found.value == found.lower_bound == 300 * 60 // replicas
    assert "  " not in dict(found.facts())["Step"]
