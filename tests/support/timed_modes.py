"""Two ranks, three microbatches, modes that cost time: everything derived by hand.

F = 10, BW = 20, no delays; rank 0 has room for two microbatches. 1F0 is recomputed (BW 30), 0F1
goes out (15) and comes back (45)::

    0: 0F0 0-10, 0F1 10-20, 0O1 20-35, 0F2 35-45 (waits for 0O1), 0BW0 50-70, 0L1 70-115 (there is
       room once 0F0 is freed), 0BW1 115-135, 0BW2 135-155
    1: 1F0 10-20, 1BW0 20-50, 1F1 50-60, 1BW1 60-80, 1F2 80-90, 1BW2 90-110

Without its copies it would take 140: 0BW1 80-100, 0BW2 110-130, 0F2 20-30.
"""

from __future__ import annotations

from pipesat.problem.ops import Item, Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem

MODES = {(0, 1): "offload", (1, 0): "recompute"}
_DEVICE_0 = "0F0 0 10, 0F1 10 20, 0F2 35 45, 0BW0 50 70, 0BW1 115 135, 0BW2 135 155"
_DEVICE_1 = "1F0 10 20, 1BW0 20 50, 1F1 50 60, 1BW1 60 80, 1F2 80 90, 1BW2 90 110"
_ROWS = tuple([part.split() for part in row.split(", ")] for row in (_DEVICE_0, _DEVICE_1))


def _in_mode(text: str) -> Item:
    op = parse_item(text)
    assert isinstance(op, Op)
    return op._replace(mode=1 if op[::2] in MODES else 0)


ORDER = tuple(tuple(_in_mode(text) for text, _, _ in row) for row in _ROWS)
TIMES = tuple(tuple((int(start), int(end)) for _, start, end in row) for row in _ROWS)


def problem_with_modes(unit: str) -> Problem:
    """Return the problem; each stage has the one mode that is used there."""
    stage = {"F": 10, "B": 10, "W": 10, "backward": "fused", "held_after_F": 10}
    offload = {"name": "offload", "offload": {"out": 15, "in": 45, "held": 0}}
    recompute = {"name": "recompute", "BW": 30, "held_after_F": 0, "held_in_backward": 10}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "time_unit": unit,
            "microbatches": 3,
            "devices": [{"memory": 20}, {}],
            "stages": [
                stage | {"device": 0, "modes": [offload]},
                stage | {"device": 1, "modes": [recompute]},
            ],
        }
    )
