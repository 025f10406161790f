"""How a problem is searched: for what, how long, by how many lanes, from what, and by what."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipesat.core.claims import Bound
from pipesat.core.usable_cores import usable_cores
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.solving import Listener, Starts


@dataclass(frozen=True)
class SearchParts:
    """Switches for measuring what each part is worth (experiments/ has the figures).

    What starts are worth is measured by ``starts`` of :class:`SolveOptions`.

    Parameters
    ----------
    closed_forms
        The bounds of :mod:`pipesat.bounds.closed_form`.
    windows
        Large-neighbourhood search.
    relaxations
        Models of some devices; without, only the whole model is tried.
    packing
        Justification of the best warm start.
    growth
        Schedules grown from few microbatches.
    exchanges
        Microbatches that differ change places in an order, and ops that may pair join others.
    """

    closed_forms: bool = True
    windows: bool = True
    relaxations: bool = True
    packing: bool = True
    growth: bool = True
    exchanges: bool = True


ALL_PARTS = SearchParts()


@dataclass(frozen=True)
class SolveOptions:
    """How a problem is searched; the bound and the schedule depend on nothing else.

    Parameters
    ----------
    objective
        What is to be least, ``makespan`` or ``span``.
    time_limit
        Seconds.
    workers
        Lanes that search at a time: this process, and one more for each worker beyond the first.
        By default as many as there are cores this process may use.
    seed
        Of everything that is drawn.
    deterministic
        Make the result depend on the seed alone, not on the machine's load: one lane, limits in
        CP-SAT's deterministic time (about seconds of processor time), every closed form and start
        taken, uncounted, as loading is. With modes, starts along guides are counted too low: a
        solve may take five times its limit.
    starts
        Hand-written schedules to make and to start from: ``all``, ``greedy`` ones, or ``none``. The
        result is never worse than the best of them that is valid. If none is, one microbatch after
        the other is where the search begins.
    schedules
        Other schedules to start from, none of them a baseline; a generator may make them lazily.
    known_bound
        A bound of the objective that is proven already, for example with more memory.
    listener
        Called with every improvement of value or bound, from any thread.
    stop
        Set it from elsewhere to end the solve early with what there is.
    parts
        What takes part in the search; everything, except in an ablation.
    """

    objective: Objective = "makespan"
    time_limit: float = 60.0
    workers: int | None = None
    seed: int = 0
    deterministic: bool = False
    starts: Starts = "all"
    schedules: Iterable[Schedule] = ()
    known_bound: Bound | None = None
    listener: Listener | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    parts: SearchParts = ALL_PARTS

    @property
    def lanes(self) -> int:
        """Lanes that may search at a time."""
        return 1 if self.deterministic else self.workers or usable_cores()
