"""Bounds by the devices of routes, each with its stages, that know their neighbours' ranks.

Every device is followed state by state (:mod:`pipesat.kernels.device_states`), from the beginning
and from the end, in all schedules of at most some length. What that says of the start and end of
the k-th F and of the k-th backward of a stage is passed on to the stages beside it. If a device has
no schedule left, there is none (docs/proofs/search.md, "Ranks"). If all have, CP-SAT is asked for
one in the windows that are left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, cycle, product

import numpy as np
from ortools.sat.python import cp_model

from pipesat.bounds.paired import least_times_of_each_class
from pipesat.core.claims import Bound
from pipesat.kernels.device_states import NEVER
from pipesat.problem.ops import Phase
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay
from pipesat.solver.lanes.clock import CONSTRAINTS_PER_SECOND, Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import FOUND, PROOFS, Runner, Share
from pipesat.solver.model.memory import staircase_applies
from pipesat.solver.model.model import build_model, model_size
from pipesat.solver.proof.device_ranks import PHASES, DeviceStates
from pipesat.solver.proof.device_runs import F

SOURCE = "states of all devices, by rank"
MODEL = "CP-SAT in the windows of all ranks"
_FIRST_LIMIT, _LONGER = 1.0, 3.0  # seconds of a model; times as many when nothing else is left
WIDTHS = 1, 16, 128  # states of the same counts that are kept apart: one at first
_SECONDS, _MOST_SECONDS = 6, 96  # that states of a question may take, by their number
_MORE = 4  # times as many where that was not enough
_HALVES, _LEAST_HALVES = 8, 0.5  # time for halves of windows, per that before; seconds
_LONG = 2  # microbatches per device beyond which a run is long
_CLOSE = 1 / 5000  # of the value: no nearer to a length that is not refuted


def _is_long(problem: Problem) -> bool:
    """Whether a single route has many microbatches, alike, whose memory may slow them down."""
    one = problem.plain and len(problem.routes) == 1
    scarce = any(device.slack is not None for device in problem.devices)
    return one and scarce and problem.microbatches[0] > _LONG * len(problem.devices)


class KnownRanks:
    """Asks whether there is a schedule of at most some length, a share of the gap at a time."""

    def __init__(self, problem: Problem, incumbent: Incumbent, *, seed: int = 0) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.seed = seed
        self.models = problem.plain and problem.overlap is None and not _is_long(problem)
        self.limit = max(_FIRST_LIMIT, model_size(problem) / CONSTRAINTS_PER_SECOND)
        self.tried = 0
        self.ended: int | None = None  # value at which nothing was left to ask
        self.share = Share(1 / 16 if problem.overlap is None else 1 / 4, more_by=2.0)
        self.possible = NEVER  # the least length that was not refuted
        self.most, self.cut, self.useful = _SECONDS, False, False
        self.first = len(problem.busy) - 1  # place of the device that is followed first
        self.effort = Clock(0, deterministic=True)  # of a question
        self._asking: Iterator[None] = iter(())
        self._loops_ready = False

    @property
    def finished(self) -> bool:
        """Whether nothing is left to ask, unless the value becomes less."""
        return self.ended is not None and self.ended == self.incumbent.value

    @cached_property
    def _devices(self) -> list[DeviceStates]:
        (least,) = least_times_of_each_class(self.problem)
        return [DeviceStates(self.problem, least, one) for one in self.problem.busy]

    def ready(self) -> bool:
        """Whether it can be asked at once: the first run of all compiles loops for some seconds."""
        length = self.incumbent.bound.value
        self._loops_ready = self._loops_ready or self._devices[0].within(length).ready()
        return self._loops_ready

    def step(self, runner: Runner) -> None:
        """Follow one device from one end."""
        if next(self._asking, _OVER) is _OVER:
            length = self._length()
            self.ended = self.incumbent.value if length is None else None
            if length is not None:
                self.tried += 1
                self._asking = self._ask(length, runner)

    def _length(self) -> int | None:
        """The length to ask for next, if any."""
        bound, value = self.incumbent.bound.value, self.incumbent.value
        if value is None or bound >= value or not self.incumbent.trusts(SOURCE):
            return None
        plain = self.problem.overlap is None and not self.problem.has_modes
        if self.cut and plain and not self.useful:
            return None  # less length has hardly fewer states, and relaxations can use the time
        high = min(self.possible, value)
        if high - bound > (_CLOSE * value if high < value else 0):
            return max(bound, self.share.target(bound, high))
        if self.cut and self.most < _MOST_SECONDS:
            self.most, self.cut, self.possible = _MORE * self.most, False, NEVER
            return self._length()
        if self.models and self.limit < self.incumbent.clock.left:
            self.limit, self.possible = _LONGER * self.limit, NEVER
            return self._length()
        return None

    def _ask(self, length: int, runner: Runner) -> Iterator[None]:
        """Follow all devices, then with halves of windows; a bound if there is no schedule."""
        devices = [device.within(length) for device in self._devices]
        self.effort = Clock(self.most, deterministic=True)
        none = yield from self._has_none(devices, range(len(devices)), self.first, WIDTHS, runner)
        models = self.models and self.limit < runner.clock.left
        if none is False and models and self._modelled(devices, length, runner):
            return
        most = max(_LEAST_HALVES, _HALVES * self.effort.elapsed)
        changed = not (models or _is_long(self.problem))
        while none is False and changed:
            changed = False
            for _, *window in sorted(w for n, one in enumerate(devices) for w in one.windows(n)):
                if self.effort.elapsed > most:
                    break
                place, row, rank = window
                halves = [[x.within(length) for x in devices] for _ in range(2)]
                devices[place].halve(row, rank, halves[0][place], halves[1][place])
                found = list[bool | None]()
                for half in halves:
                    one = self._has_none(half, [place], place, WIDTHS[:2], runner)
                    found.append((yield from one))
                none = None if None in found else all(found)
                if none is not False:
                    break
                if any(found):
                    devices, changed = halves[found.index(False)], True
        if none:
            self.incumbent.raise_bound(Bound(length + 1, SOURCE))
            self.share.refuted()
            self.useful = True
        elif self.incumbent.bound.value <= length and not runner.clock.over:
            self.possible = min(length, self.possible)
            self.share.less()

    def _modelled(self, devices: Sequence[DeviceStates], length: int, runner: Runner) -> bool:
        """Ask CP-SAT for a schedule within all windows; return whether it has answered."""
        model = build_model(self.problem, "makespan", 0, length)
        self.models = model.variables.times.exact and self.incumbent.trusts(PROOFS)
        if not self.models:
            return False
        for device in devices:
            device.add_to(model.variables)
        model.cp.clear_objective()  # type: ignore[no-untyped-call]
        stairs = all(staircase_applies(self.problem, device) for device in self.problem.busy)
        limit = max(self.limit, self.effort.elapsed)
        solver, status = runner.solve(
            model.cp, limit=limit, seed=self.seed, strong=stairs, linear=False
        )
        if status == cp_model.INFEASIBLE:
            self.incumbent.raise_bound(Bound(model.beyond, MODEL), PROOFS)
            self.share.refuted()
            return True
        value = self.incumbent.offer(model.order(solver.value), MODEL) if status in FOUND else None
        if value is None or value > length:
            return False
        self.share.less()
        return True

    def _has_none(
        self,
        devices: Sequence[DeviceStates],
        changed: Iterable[int],
        first: int,
        widths: Sequence[int],
        runner: Runner,
    ) -> Generator[None, None, bool | None]:
        """Go up and down the devices while something changes, and whether one has no schedule.

        ``None``: not known, or no longer of interest.
        """
        places, followed = range(len(devices)), set[int]()
        home = {stage: (d, n) for d, x in enumerate(devices) for n, stage in enumerate(x.stages)}
        new, merged = set(changed), set[int]()
        for width in widths:
            new |= merged
            for place in chain([first], cycle([*places[::-1], *places[1:-1]])):
                if not new:
                    break
                if place not in new:
                    continue
                new.remove(place)
                merged.discard(place)
                followed.add(place)
                for end in (0, 1):
                    yield
                    value, length = self.incumbent.value, devices[place].length
                    if value is None or not self.incumbent.bound.value <= length < value:
                        return None
                    found = devices[place].follow(end, width, self.effort, runner)
                    if found is None:  # too many in all, or at once
                        self.cut = self.cut or self.effort.over
                        self.first = self.first if self.effort.over else (place - 1) % len(places)
                        return None
                    if not devices[place].modes:
                        self.first = place if followed == {place} else self.first
                        return True
                    ends, exact = found
                    merged |= set() if exact else {place}
                    for (stage, (d, n)), (kind, phase) in product(home.items(), PHASES):
                        source = self._source(stage, kind, phase, end)
                        if source is None or home[source[0]][0] != place:
                            continue
                        m = self.problem.microbatches[stage]
                        times = devices[d].earliest[end, 3 * n + kind, :m]
                        later = ends[3 * home[source[0]][1] + kind, :m] + source[1]
                        if (later > times).any():
                            np.maximum(times, later, out=times)
                            if d != place:
                                new.add(d)
        return False

    def _source(self, stage: int, kind: int, phase: Phase, end: int) -> tuple[int, int] | None:
        """The stage whose ops of a kind those of this one follow, seen from one end; the delay."""
        route, place = self.problem.route(stage).stages, self.problem.place_of[stage]
        other = place + (1 if (kind == F) == end else -1)
        if other not in range(len(route)):
            return None
        return route[other], link_delay(self.problem, route[min(place, other)], phase)


_OVER = object()
