"""Hand-written schedules against torch's own orders, op for op."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from pipesat.heuristics import BASELINES
from pipesat.heuristics.interleaved import interleaved
from pipesat.problem.ops import Item, Op, Pair
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.torch.lint import KIND_OF, LETTER_OF, parse_cell
from pipesat.schedule.schedule import Schedule
from tests.support.problems import document, loop, vee

pytest.importorskip("torch", reason="needs the extra `torch`")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")

RANKS = (1, 2, 3, 5)
CHUNKS = (2, 3)
GRID = list(product(RANKS, CHUNKS))


def ours(schedule: Schedule) -> list[list[str]]:
    """Rows in torch's letters: F, I (our B), W, B (our BW)."""
    ops = [[t.item for t in row if isinstance(t.item, Op)] for row in schedule.devices]
    assert len(schedule) == sum(map(len, ops))
    return [[f"{op.stage}{LETTER_OF[op.kind]}{op.microbatch}" for op in row] for row in ops]


def torchs(name: str, p: int, m: int, v: int) -> list[list[str]]:
    """Rows of a multi-stage schedule of torch's, idle cells left out."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    table = get_schedule_ops(name, p, m, v)
    return [[str(action) for action in row if action is not None] for row in table]


def taken_by_torch(p: int) -> list[int]:
    """Numbers of microbatches that divide into equal groups of p or more, or fewer than p."""
    return [m for m in range(1, 3 * p + 2) if m % max(1, m // p) == 0]


class RecordingStage(SimpleNamespace):
    """A stage that computes and sends nothing but remembers what it was asked to compute."""

    def __init__(self, stage: int, p: int) -> None:
        super().__init__(
            stage_index=stage, num_stages=p, group_size=p, is_last=stage == p - 1, done=[]
        )

    def forward_one_chunk(self, microbatch: int, *_: Any, **__: Any) -> None:
        self.done.append(f"{self.stage_index}F{microbatch}")

    def backward_one_chunk(self, microbatch: int, **_: Any) -> None:
        self.done.append(f"{self.stage_index}B{microbatch}")

    def get_fwd_recv_ops(self, _: int) -> list[Any]:
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops

    def perform_reduce_grad(self, _: int) -> None:
        pass

    release_fwd_send_outputs = perform_reduce_grad  # from torch 2.15 on


def run_by_torch(name: str, p: int, m: int) -> list[list[str]]:
    """What a single-stage schedule of torch's executes on every rank."""
    from torch.distributed.pipelining.schedules import get_schedule_class

    rows = []
    for rank in range(p):
        stage = RecordingStage(rank, p)
        schedule = get_schedule_class(name)(stage, m)
        schedule._initialize_stage = lambda *_: None  # which exchanges shapes between processes
        schedule._step_microbatches()
        rows.append(stage.done)
    return rows


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize(("name", "theirs"), [("gpipe", "GPipe"), ("1f1b", "1F1B")])
def test_one_stage_per_rank(name: str, theirs: str, p: int) -> None:
    """Recorded from a run: the order that torch prints for 1F1B's last rank is not what it runs.

    torch's 1F1B wants at least as many microbatches as ranks.
    """
    for m in (*range(p, 3 * p + 2), *(range(1, p) if theirs == "GPipe" else ())):
        assert ours(BASELINES[name](loop(p, 1, m))) == run_by_torch(theirs, p, m)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "v"), GRID)
@pytest.mark.parametrize(
    ("name", "theirs"),
    [("interleaved-1f1b", "Interleaved1F1B"), ("interleaved-zb", "InterleavedZeroBubble")],
)
def test_interleaved(name: str, theirs: str, p: int, v: int) -> None:
    """Also where p does not divide m: torch's groups are the ones taken by default."""
    for m in taken_by_torch(p):
        assert ours(BASELINES[name](loop(p, v, m))) == torchs(theirs, p, m, v)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "v"), GRID)
def test_interleaved_in_the_groups_that_torch_calls_rounds(p: int, v: int) -> None:
    for m in taken_by_torch(p):
        schedule = interleaved(loop(p, v, m), group=m // max(1, m // p))
        assert ours(schedule) == torchs("Interleaved1F1B", p, m, v)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "v"), GRID)
def test_looped_bfs(p: int, v: int) -> None:
    for m in (1, 2, 3, p, 2 * p, 3 * p + 1):
        assert ours(BASELINES["looped-bfs"](loop(p, v, m))) == torchs("LoopedBFS", p, m, v)


def torch_order(name: str, p: int, m: int, *, pairs: bool = False) -> list[list[Item]]:
    """Rows of torch's ``pipeline_order``; its I is our B, its B our BW, OVERLAP_F_B a pair."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    order: list[list[Item]] = []
    for cells in get_schedule_ops(name, p, m, 2):
        row: list[Item] = []
        for cell in cells:
            actions = parse_cell("" if cell is None else str(cell)) or ()
            ops = [Op(a.stage, KIND_OF[a.letter], a.microbatch) for a in actions]
            row += [Pair(ops[0], ops[1])] if pairs and len(ops) == 2 else ops
        order.append(row)
    return order


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_zb_v_is_torch_s(p: int) -> None:
    for m in (1, 2, p, 2 * p - 1, 2 * p, 3 * p + 1):
        ours = BASELINES["zb-v"](vee(p, m)).order
        assert [list(row) for row in ours] == torch_order("ZBVZeroBubble", p, m)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("pairs", [False, True])
def test_dualpipev_is_torch_s(p: int, pairs: bool) -> None:
    for m in (2 * p, 2 * p + 1, 3 * p + 2, 5 * p):
        problem = vee(p, m)
        if pairs:
            problem = parse_problem(document(problem, overlap={"FB": [4, 5]}))
        ours = BASELINES["dualpipev"](problem).order
        assert [list(row) for row in ours] == torch_order("DualPipeV", p, m, pairs=pairs)
