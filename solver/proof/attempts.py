"""Which relaxation a proving lane tries next."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pipesat.solver.lanes.runner import Share

_FIRST_LIMIT = 1.0  # seconds for one device
_SEVERAL = 2.0  # times as much for several
_WHOLE = 4.0  # times as much for the whole model
_WHOLE_OF_SMALL = 20.0  # the same where it alone proves much
_MORE_TIME = 1.5  # from one round of attempts to the next
_DRAWS = 3  # relaxations per round
_PERSISTENCE = 4.0  # times the present limit: the strongest relaxation is asked again for so long
_MOST_SKIPPED = 100  # attempts in a row that could not help, or were too large
_LEAST_SHARE, _LARGEST_SHARE = 0.03, 0.5  # of the gap that is to be closed at a time
_MORE, _LESS = 1.4, 0.7  # its change after a proof, and after an attempt without an outcome
_OPS_PER_ROUND = 400  # rounds between two attempts at the whole model, per so many ops

Devices: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class Attempt:
    """A relaxation that is worth a try.

    It asks for a schedule of the kept devices whose objective is at most ``bound + share (value -
    bound)``: if there is none, that is the new bound. With share 1 it looks for the optimum,
    with ``None`` it takes the share that has served so far. ``limit`` is in seconds.
    """

    devices: Devices
    share: float | None
    limit: float


def _first(devices: Devices) -> Attempt:
    """Begin with less time for one device than for several."""
    return Attempt(devices, None, _FIRST_LIMIT * (1 if len(devices) == 1 else _SEVERAL))


class Attempts:
    """A queue that refills itself."""

    def __init__(
        self,
        devices: Devices,
        first: Sequence[Devices],
        ops: int,
        *,
        seed: int,
        fits: Callable[[Devices], bool],
        small: bool = False,
    ) -> None:
        """Begin with those of ``first``; if none, only the whole is tried.

        ``fits`` says whether a model of some devices is small enough for the time left, ``small``
        whether the whole model is likely to be solved if it is given time. ``tried`` counts
        attempts, ``why_ended`` says why there is nothing left to try.
        """
        self._whole = _WHOLE_OF_SMALL if small else _WHOLE
        self._all, self._ops, self._fits = devices, ops, fits
        self._draws = _DRAWS if first and len(devices) > 1 else 0
        self._queue = deque(map(_first, first))
        self._rng = random.Random(seed)  # noqa: S311
        self._reach: dict[Devices, int] = {}  # value of a schedule of these devices
        self._strongest: Devices = frozenset()
        self._share = Share(more_by=_MORE, less_by=_LESS, least=_LEAST_SHARE, most=_LARGEST_SHARE)
        self._size, self._limit, self._rounds = 1, _FIRST_LIMIT, 0
        self._skipped = self.tried = 0
        self.why_ended: str | None = None

    def end(self, why: str) -> None:
        """Try nothing any more."""
        self.why_ended = self.why_ended or why

    def take(self, bound: int) -> Attempt | None:
        """Take an attempt that may raise the bound; ``None`` if the next one cannot."""
        if not self._queue and self.why_ended is None:
            self._refill()
        attempt = self._queue.popleft() if self._queue else None
        if attempt and self._may_help(attempt.devices, bound) and self._fits(attempt.devices):
            self._skipped = 0
            return attempt
        self._skipped += 1
        if self._skipped > _MOST_SKIPPED:
            self.why_ended = self.why_ended or "no relaxation left that could help"
        return None

    def share_of(self, attempt: Attempt) -> float:
        """Share of the gap that an attempt is asked to close."""
        return self._share.share if attempt.share is None else attempt.share

    def learn(
        self, attempt: Attempt, *, reach: int | None, infeasible: bool, raised: bool, proven: bool
    ) -> None:
        """Take in the outcome of an attempt.

        ``reach`` is the value of a schedule of these devices, if one was found; ``raised`` says
        whether the bound has become better, ``proven`` whether it meets the value.
        """
        self.tried += 1
        if attempt.share is None and reach is None:
            if infeasible:
                self._share.refuted()
            else:
                self._share.less()
        if reach is not None:
            self._reach[attempt.devices] = reach
        if raised:
            self._strongest = attempt.devices
            if attempt.share != 1.0 and not proven:
                self._queue.appendleft(attempt)  # it may prove the next share as well
        elif reach is None and attempt.devices == self._strongest:
            longer = replace(attempt, limit=2 * attempt.limit)
            if longer.limit <= _PERSISTENCE * self._limit:
                self._queue.appendleft(longer)

    def _refill(self) -> None:
        """Queue the whole model and larger relaxations, with more time than before."""
        self._limit *= _MORE_TIME
        self._size = self._size % max(1, len(self._all) - 1) + 1
        drawn = [self._draw() for _ in range(self._draws)]
        drawn[:0] = [self._strongest] if self._strongest else []
        if self._rounds % (1 + self._ops // _OPS_PER_ROUND) == 0 or not drawn:
            self._queue.append(Attempt(self._all, 1.0, self._whole * self._limit))
        self._rounds += 1
        self._queue += [Attempt(d, None, self._limit) for d in dict.fromkeys(drawn)]
        if not any(self._fits(attempt.devices) for attempt in self._queue):
            self.why_ended = f"{self._ops} ops make too large a model for the time left"

    def _draw(self) -> Devices:
        """Draw some of the strongest relaxation so far, and others that lie apart from it."""
        kept = sorted(self._strongest)
        chosen = set(self._rng.sample(kept, min(len(kept), max(1, self._size - 1))))
        rest = sorted(self._all - chosen)
        while len(chosen) < self._size and rest:
            apart = [min((abs(d - c) for c in chosen), default=1) for d in rest]
            (device,) = self._rng.choices(rest, apart)
            chosen.add(device)
            rest.remove(device)
        return frozenset(chosen)

    def _may_help(self, devices: Devices, bound: int) -> bool:
        return not any(devices <= known and value <= bound for known, value in self._reach.items())
