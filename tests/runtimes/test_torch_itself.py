"""Against torch itself: its own orders can be read, and its loaders agree on placements."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipesat import check
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import members
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.runtimes.hangs.step_lists import WORDS
from pipesat.runtimes.steps import RankStep, lowered_steps
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.csv_file import read_torch_csv, rows_of_csv, torch_csv
from pipesat.runtimes.torch.lint import LETTER_OF, lint

pytest.importorskip("torch", reason="needs the extra `torch`")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def looped(ranks: int, chunks: int, m: int) -> Problem:
    return placed([s % ranks for s in range(ranks * chunks)], ranks, m)


def vee(ranks: int, m: int) -> Problem:
    return placed([*range(ranks), *reversed(range(ranks))], ranks, m)


def placed(devices: list[int], ranks: int, m: int) -> Problem:
    stages = [{"device": d, "F": 1, "B": 1, "W": 1} for d in devices]
    return parse_problem(
        {"format": FORMAT, "devices": [{}] * ranks, "stages": stages, "microbatches": m}
    )


@pytest.mark.parametrize(
    ("name", "problem", "chunks"),
    [
        ("GPipe", looped(4, 1, 8), 1),
        ("Interleaved1F1B", looped(4, 2, 8), 2),
        ("LoopedBFS", looped(2, 2, 4), 2),
        ("InterleavedZeroBubble", looped(4, 2, 8), 2),
        ("ZBVZeroBubble", vee(4, 8), 2),
        ("DualPipeV", vee(4, 10), 2),
    ],
)
def test_torch_s_own_orders_are_read(
    name: str, problem: Problem, chunks: int, tmp_path: Path
) -> None:
    """Dumped with and without torch's communication actions; complete, acyclic and valid."""
    from torch.distributed.pipelining import schedules
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    ranks, m = len(problem.devices), problem.routes[0].microbatches
    for with_comms in (False, True) if chunks > 1 else (False,):  # torch cannot for one stage
        table = get_schedule_ops(name, ranks, m, chunks, with_comms=with_comms)
        path = tmp_path / f"{name}.csv"
        path.write_text(
            "".join(",".join("" if a is None else str(a) for a in row) + "\n" for row in table)
        )
        schedule, notes = read_torch_csv(path, problem)
        release = "2.15" if hasattr(schedules, "WAIT_SEND_F") else "2.13"
        told = any(f"by the rules of torch {release}" in note for note in notes)
        assert told or not with_comms
        assert check(problem, schedule) == []
        back = torch_csv(problem, schedule)
        stages = problem.routes[0].stages
        assert lint(rows_of_csv(back, "export"), len(stages), m) == []


@pytest.mark.parametrize("problem", [looped(2, 1, 4), looped(2, 2, 4), vee(2, 4)])
def test_torch_loads_what_we_export(problem: Problem, tmp_path: Path) -> None:
    """torch's parser, validator and send/receive lowering take the file; no process is needed."""
    from torch.distributed.pipelining import schedules

    schedule = adapt(problem, BASELINES["list-scheduling"](problem)).schedule
    text = torch_csv(problem, schedule)
    rows = [
        [schedules._Action.from_str(cell) for cell in line.split(",")] for line in text.splitlines()
    ]
    order = dict(enumerate(rows))
    stages, m = len(problem.stages), problem.routes[0].microbatches
    mapping = schedules._validate_schedule(order, len(problem.devices), stages, m)
    assert mapping == {s: data.device for s, data in enumerate(problem.stages)}
    lowered = schedules._add_send_recv(order, stage_to_rank=lambda s: mapping[s], num_stages=stages)
    kept = [
        [str(a) for a in lowered[rank] if "SEND" not in str(a) and "RECV" not in str(a)]
        for rank in sorted(lowered)
    ]
    assert kept == [line.split(",") for line in text.splitlines()]
    ours = [[*map(said, row)] for row in lowered_steps(problem, schedule.order)]
    assert ours == [[str(action) for action in lowered[rank]] for rank in sorted(lowered)]
    assert check(problem, schedule, "torch").safe
    assert not check(problem, schedule, "pair-fifo").safe


def said(step: RankStep) -> str:
    """Write a step as torch does."""
    (op,) = members(step.item)
    return f"{op.stage}{WORDS.get(step.kind) or LETTER_OF[op.kind]}{op.microbatch}"
