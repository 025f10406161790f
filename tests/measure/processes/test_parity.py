"""Orders of every kind, run in torch's pipeline runtime and compared with one process."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipesat.compare.solve import solve
from pipesat.core.errors import RunFailed
from pipesat.heuristics import BASELINES
from pipesat.measure.processes.run import ParityReport, check_parity
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.csv_file import torch_csv
from pipesat.schedule.schedule import Order
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.timing import time_order
from tests.support.problems import chain, document, problems, vee

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("warm"),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs torch: pip install 'pipesat[torch]'",
    ),
]

TIMEOUT = 240.0  # two slow cores shared with others

# Problems


def placed(*devices: int, m: int, **stage) -> Problem:
    """Stage s on device ``devices[s]``; w > a: B takes memory, as in eager torch."""
    costs = {"F": 2, "B": 3, "W": 1, "held_after_F": 2, "held_after_B": 3} | stage
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": m,
            "devices": [{}] * (1 + max(devices)),
            "stages": [{"device": device} | costs for device in devices],
            "comm": {"default": 1},
        }
    )


def capped(problem: Problem, memory: int) -> Problem:
    return parse_problem(document(problem, devices=[{"memory": memory} for _ in problem.devices]))


# Orders


def adapted(problem: Problem, order: Order) -> str:
    """The CSV that ``pipesat export`` writes of an order."""
    return torch_csv(problem, adapt(problem, time_order(problem, order)).schedule)


def as_it_is(problem: Problem, order: Order) -> str:
    """The CSV of exactly this order, the first stage's I and W included."""
    return torch_csv(problem, time_order(problem, order))


def baseline(name: str, problem: Problem) -> str:
    return adapted(problem, BASELINES[name](problem).order)


def solved(problem: Problem) -> str:
    schedule = solve(problem, time_limit=2, workers=1).schedule
    assert schedule is not None
    return adapted(problem, schedule.order)


def w_at_the_end(problem: Problem) -> str:
    """1F1B with B and W apart, every W after everything else of its rank."""
    rows = BASELINES["1f1b"](chain(len(problem.devices), problem.microbatches[0])).order
    split = [
        [Op(op.stage, "B" if op.kind == "BW" else op.kind, op.microbatch) for op in row]
        for row in rows
    ]
    late = [tuple(op._replace(kind="W") for op in row if op.kind == "B") for row in split]
    return as_it_is(problem, tuple((*row, *ws) for row, ws in zip(split, late, strict=True)))


def random_order(problem: Problem, seed: int, *, in_order: bool = False) -> Order:
    """Any order that can run: ops in a random sequence, the backward split or fused at random.

    Microbatches overtake each other everywhere, with ``in_order`` except in the last stage's F.
    """
    choose = random.Random(seed)
    waiting: list[Op] = []
    for stage, data in enumerate(problem.stages):
        for microbatch in range(problem.microbatches[stage]):
            split = data.may_split and (not data.may_fuse or choose.random() < 0.5)
            kinds = ["F", "B", "W"] if split else ["F", "BW"]
            waiting += [Op(stage, kind, microbatch) for kind in kinds]
    done: set[tuple[int, str, int]] = set()
    rows: list[list[Op]] = [[] for _ in problem.devices]

    def ready(op: Op) -> bool:
        stage, kind, microbatch, _ = op
        before, after = problem.previous[stage], problem.next[stage]
        if kind == "W":
            return (stage, "B", microbatch) in done
        if kind == "F":
            if (
                in_order
                and after is None
                and microbatch
                and (stage, "F", microbatch - 1) not in done
            ):
                return False
            return before is None or (before, "F", microbatch) in done
        needed = (stage, "F") if after is None else (after, "B")
        return (*needed, microbatch) in done and (stage, "F", microbatch) in done

    while waiting:
        op = choose.choice([op for op in waiting if ready(op)])
        waiting.remove(op)
        done.add((op.stage, "B" if op.kind == "BW" else op.kind, op.microbatch))
        rows[problem.stages[op.stage].device].append(op)
    return tuple(map(tuple, rows))


def mixed(problem: Problem, seed: int) -> str:
    order = random_order(problem, seed, in_order=True)
    assert {op.kind for row in order for op in row} == {"F", "B", "W", "BW"}
    return as_it_is(problem, order)


# Ranks, order by order. Each is one training step on a transformer of as many stages.

CASES: dict[int, dict[str, Callable[[], str]]] = {
    2: {
        "gpipe": lambda: baseline("gpipe", chain(2, 4)),
        "zb-h1": lambda: baseline("zb-h1", chain(2, 4)),
        "solved chain": lambda: solved(chain(2, 4, F=2, B=3, cap=3, comm=1)),
        "solved v": lambda: solved(vee(2, 4, cap=4)),
        "loop": lambda: baseline("list-scheduling", placed(0, 1, 0, 1, m=4)),
        "block": lambda: baseline("list-scheduling", placed(0, 0, 1, 1, m=4)),
        "3 + 1 stages": lambda: baseline("list-scheduling", placed(0, 0, 0, 1, m=4)),
        "w > a": lambda: solved(capped(placed(0, 1, m=4), 7)),
        "W at the end": lambda: w_at_the_end(placed(0, 1, m=4)),
        "mixed": lambda: mixed(placed(0, 1, m=4), 1),
        "first and last on one rank": lambda: mixed(placed(0, 1, 0, m=3), 2),
        "overlapped": lambda: "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1I2,1W2\n",
        "one microbatch": lambda: baseline("1f1b", chain(2, 1)),
    },
    4: {
        "1f1b": lambda: baseline("1f1b", chain(4, 6)),
        "solved chain": lambda: solved(chain(4, 6, comm=1, cap=5)),
        "solved v": lambda: solved(vee(4, 4)),
        "loop": lambda: baseline("list-scheduling", placed(*range(4), *range(4), m=6)),
        "uneven": lambda: baseline("list-scheduling", placed(0, 1, 1, 1, 2, 3, 0, m=4)),
        "mixed": lambda: mixed(placed(3, 2, 1, 0, 0, 2, m=4), 4),
    },
}


@lru_cache
def reports(ranks: int) -> dict[str, ParityReport]:
    """Run all orders for so many ranks; starting torch takes longer than running them."""
    orders = [order() for order in CASES[ranks].values()]
    return dict(zip(CASES[ranks], check_parity(orders, timeout=TIMEOUT), strict=True))


def parameters(stages: int) -> int:
    """Tensors with gradients: 12 of a block; words, positions, a norm's two and the head's one."""
    return 12 * stages + 5


@pytest.mark.parametrize(
    ("ranks", "name"), [(r, name) for r, names in CASES.items() for name in names]
)
def test_parity(ranks: int, name: str) -> None:
    report = reports(ranks)[name]
    actions = [action for row in report.planned for action in row]
    stages = len({action for action in actions if action.endswith("F0")})
    microbatches = len({action for action in actions if action.startswith("0F")})
    assert report.check.error < 1e-10
    assert report.executed == report.planned
    assert report.passed
    assert len(report.check.losses) == microbatches
    assert report.document()["gradients"] == parameters(stages)
    total = sum(map(Counter, report.counts), Counter())
    assert total["F"] == total["B"] + total["I"] == total["B"] + total["W"] == stages * microbatches


def test_the_cases_split_and_fuse() -> None:
    total = sum((Counter(c) for c in reports(2)["mixed"].counts), Counter())
    assert min(total["B"], total["I"]) > 0
    (late, _) = reports(2)["W at the end"].executed
    assert late[-4:] == ("0W0", "0W1", "0W2", "0W3")  # of the first stage too, where W does it all


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(
    problems().filter(lambda problem: len(problem.routes) == 1 and all(problem.stages_on)),
    st.integers(0, 2**32),
)
def test_any_order_of_any_problem(problem: Problem, seed: int) -> None:
    roomy = parse_problem(document(problem, devices=[{} for _ in problem.devices]))
    orders = [
        as_it_is(roomy, random_order(roomy, seed, in_order=True)),
        adapted(roomy, random_order(roomy, seed + 1)),
        baseline("list-scheduling", problem),
    ]
    for report in check_parity(orders, timeout=TIMEOUT):
        assert report.passed, report


# Orders that torch runs wrongly or not at all (the lint refuses them; here it is not asked)


def test_a_loss_of_the_wrong_microbatch_is_seen() -> None:
    (report,) = check_parity(
        ["0F1,0F0,0B0,0B1\n"], timeout=TIMEOUT
    )  # torch stores them as they come
    assert not report.passed
    assert report.executed_as_planned
    assert report.check.worst.startswith("loss of microbatch")
    assert report.check.error > 1e-3


def test_a_rank_that_fails_ends_all_with_its_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    doubled = "0F0,0B0,0F1,0B1\n1F0,1I0,1W0,1W0,1F1,1I1,1W1\n"
    with pytest.raises(RunFailed) as error:
        check_parity([doubled], timeout=TIMEOUT)
    assert "rank 1 failed (in 1W0, its action 4)" in str(error.value)
    assert any("backward_weight_one_chunk" in line for line in error.value.log)
    assert list(tmp_path.iterdir()) == []


# The command


def test_the_command(cli, save, tmp_path) -> None:
    problem = placed(0, 1, m=3)
    schedule = tmp_path / "schedule.json"
    write_schedule(schedule, problem, BASELINES["zb-h1"](problem))
    outcome = cli(
        "run", "--verify", save(problem), schedule, "--json", "--steps", f"timeout={TIMEOUT}"
    )
    assert outcome.code == 0
    assert outcome.json["passed"] is True
    assert outcome.json["largest_relative_error"] < 1e-10
    assert outcome.json["gradients"] == parameters(2)
    assert outcome.json["executed"][1]["F"] == 3
    assert "the first stage's backward written whole" in outcome.err
