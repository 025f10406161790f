"""Which parts of the search take part: all of them, except in an ablation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchParts:
    """Switches for measuring what each part is worth (experiments/ has the figures).

    What warm starts are worth is measured by handing in fewer.

    Parameters
    ----------
    closed_forms
        The bounds of :mod:`pipesat.bounds.closed_form`.
    staircase
        The staircase of devices with one stage; without, order literals count their memory.
    windows
        Large-neighbourhood search.
    relaxations
        Models of some devices; without, only the whole model is tried.
    short_runs
        Bounds of long runs from models of fewer microbatches.
    stretches
        The same from stretches of a long run, with what is left to do counted.
    packing
        Justification of the best warm start.
    growth
        Schedules grown from few microbatches.
    exchanges
        Microbatches that differ change places in an order.
    """

    closed_forms: bool = True
    staircase: bool = True
    windows: bool = True
    relaxations: bool = True
    short_runs: bool = True
    stretches: bool = True
    packing: bool = True
    growth: bool = True
    exchanges: bool = True


ALL_PARTS = SearchParts()
