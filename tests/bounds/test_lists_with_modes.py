"""Closed forms where microbatches differ and may recompute, against the oracle for lists.

Each way to choose the modes is a problem of lists alone: a class per microbatch, with the amounts
of its modes written out. The least of their optima is that of the problem.
"""

from __future__ import annotations

from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.problem.problem_file import parse_problem


def test_a_long_microbatch_that_recomputes_is_seen_as_long() -> None:
    """F 3 and 1, BW 6 and 2 at least on one device after another of the same: 4 F, 8 BW, 1 before.

    With the least of both classes there were 2 F and 4 BW.
    """
    stage = {"F": 1, "B": 1, "W": 1, "BW": 2, "held_after_F": 2, "backward": "fused"}
    mode = {"name": "again", "BW": 3, "held_after_F": 1}
    document = {
        "format": "pipesat.problem/1",
        "devices": [{}, {}],
        "stages": [stage | {"device": d, "modes": [mode]} for d in (0, 1)],
        "microbatches": [
            {"name": "long", "count": 1, "time": [3, 1]},
            {"name": "short", "count": 1},
        ],
    }
    found = {b.source: b.value for b in closed_form_bounds(parse_problem(document), "makespan")}
    assert found["closed form: load of device 0"] == 12
    assert found["closed form: load of device 1"] == 13
