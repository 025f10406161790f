"""Hand-written schedules, one published schedule per file.

``BASELINES`` maps the name that users type to the schedule: call it with a problem. It returns a
schedule timed as early as possible, whether or not it fits into memory (the checker tells), or
raises :class:`pipesat.core.errors.NotApplicable` with the reason.
"""

from __future__ import annotations

from typing import Final

from pipesat.heuristics.chimera import chimera
from pipesat.heuristics.dualpipe import dualpipe, dualpipev
from pipesat.heuristics.eager_1f1b import eager_1f1b
from pipesat.heuristics.gis import gis, gis_h
from pipesat.heuristics.gpipe import gpipe
from pipesat.heuristics.greedy_pairs import greedy_pairs
from pipesat.heuristics.interleaved import interleaved_1f1b
from pipesat.heuristics.interleaved_overlapped import interleaved_overlapped
from pipesat.heuristics.interleaved_zb import interleaved_zb
from pipesat.heuristics.list_scheduling import NAME as LIST_SCHEDULING
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.heuristics.lockstep import lockstep
from pipesat.heuristics.looped_bfs import looped_bfs
from pipesat.heuristics.one_f_one_b import one_f_one_b
from pipesat.heuristics.overlapped_1f1b import overlapped_1f1b
from pipesat.heuristics.registry import Published
from pipesat.heuristics.v_auto import v_auto
from pipesat.heuristics.v_half import v_half
from pipesat.heuristics.v_min import v_min
from pipesat.heuristics.wait_free_cyclic import wait_free_cyclic
from pipesat.heuristics.zb_1p import zb_1p
from pipesat.heuristics.zb_auto import zb_auto, zb_auto_span
from pipesat.heuristics.zb_h1 import zb_h1
from pipesat.heuristics.zb_h2 import zb_h2
from pipesat.heuristics.zb_v import zb_v

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
        dualpipev,
        dualpipe,
        chimera,
        lockstep,
        greedy_pairs,
        wait_free_cyclic,
        list_scheduling,
    )
}
"""In the order in which a solve tries them: the usually best first, the portfolio last."""

__all__ = ["BASELINES", "LIST_SCHEDULING", "Published"]
