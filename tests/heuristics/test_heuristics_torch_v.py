"""ZB-V and DualPipeV are, op for op, the orders of torch's own schedule classes."""

from __future__ import annotations

import pytest

from pipesat.core.ops import Item, Op, Pair
from pipesat.export.torch.lint import KIND_OF, parse_cell
from pipesat.files.problem_file import parse_problem
from pipesat.heuristics import BASELINES
from tests.support.problems import document, vee

pytest.importorskip("torch", reason="needs the extra `torch`")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


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


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
def test_zb_v_is_torch_s(p: int) -> None:
    for m in (1, 2, p, 2 * p - 1, 2 * p, 3 * p + 1):
        ours = BASELINES["zb-v"](vee(p, m)).order
        assert [list(row) for row in ours] == torch_order("ZBVZeroBubble", p, m)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("pairs", [False, True])
def test_dualpipev_is_torch_s(p: int, pairs: bool) -> None:
    for m in (2 * p, 2 * p + 1, 3 * p + 2, 5 * p):
        problem = vee(p, m)
        if pairs:
            problem = parse_problem(document(problem, overlap={"FB": [4, 5]}))
        ours = BASELINES["dualpipev"](problem).order
        assert [list(row) for row in ours] == torch_order("DualPipeV", p, m, pairs=pairs)


def test_torch_refuses_the_same_numbers_of_microbatches() -> None:
    with pytest.raises(ValueError, match="at least as many microbatches as stages"):
        torch_order("DualPipeV", 3, 5)  # ours: NotApplicable, see test_heuristics_vee
