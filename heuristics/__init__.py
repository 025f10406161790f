"""Hand-written schedules: one paper, or one family of them, per file.

``BASELINES`` maps the name that users type to the schedule: call it with a problem. It returns a
schedule timed as early as possible, whether or not it fits into memory (the checker tells), or
raises :class:`pipesat.core.errors.NotApplicable` with the reason.
"""

from __future__ import annotations

from typing import Final

from pipesat.heuristics.bidirectional import chimera, dualpipe, dualpipev
from pipesat.heuristics.controllable_memory import v_auto, v_half, v_min
from pipesat.heuristics.greedy_pairs import greedy_pairs
from pipesat.heuristics.interleaved import (
    gis,
    gis_h,
    interleaved_1f1b,
    interleaved_overlapped,
    interleaved_zb,
    looped_bfs,
)
from pipesat.heuristics.list_scheduling import NAME as LIST_SCHEDULING
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.heuristics.lockstep import lockstep
from pipesat.heuristics.one_f_one_b import eager_1f1b, gpipe, one_f_one_b, overlapped_1f1b
from pipesat.heuristics.one_f_one_b_v import one_f_one_b_v, one_f_one_b_v_auto
from pipesat.heuristics.registry import Published
from pipesat.heuristics.slices import (
    one_f_one_b_by_depth,
    seq1f1b,
    seq1f1b_interleaved,
    slimpipe,
)
from pipesat.heuristics.wait_free_cyclic import wait_free_cyclic
from pipesat.heuristics.zb_auto import zb_auto, zb_auto_span
from pipesat.heuristics.zero_bubble import zb_1p, zb_h1, zb_h2, zb_v

BASELINES: Final[dict[str, Published]] = {
    entry.name: entry
    for entry in (
        zb_h1,
        zb_h2,
        zb_auto,
        zb_auto_span,
        zb_1p,
        overlapped_1f1b,
        eager_1f1b,
        one_f_one_b,
        gpipe,
        interleaved_overlapped,
        interleaved_zb,
        interleaved_1f1b,
        gis,
        gis_h,
        looped_bfs,
        v_auto,
        zb_v,
        v_half,
        v_min,
        one_f_one_b_v_auto,
        one_f_one_b_v,
        dualpipev,
        dualpipe,
        chimera,
        seq1f1b,
        slimpipe,
        seq1f1b_interleaved,
        one_f_one_b_by_depth,
        lockstep,
        greedy_pairs,
        wait_free_cyclic,
        list_scheduling,
    )
}
"""In the order in which a solve tries them: the usually best first, the portfolio last."""
USUAL: Final = frozenset({one_f_one_b.name, interleaved_1f1b.name})
"""What most runs use: the first to be named among schedules that are alike."""

__all__ = ["BASELINES", "LIST_SCHEDULING", "USUAL", "Published"]
