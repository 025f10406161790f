"""Ways to a schedule beside windows: packing, growth from few microbatches, the steady state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.solver.growth.search import SOURCE as GROWTH
from pipesat.solver.growth.search import grown_orders
from pipesat.solver.model.pairing import gains
from pipesat.solver.packing import justified
from pipesat.solver.permutations.search import permutations_apply, permuted_schedules
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent
from pipesat.solver.run.runner import Runner
from pipesat.solver.search_parts import SearchParts
from pipesat.solver.steady.schedules import steady_schedules

_STARTS = 3  # of different sources: chance and where one comes from decide where packing ends
_ROUNDS = 4  # of packing them, each with other chances
_FIRST_PACKING = 0.04, 2.5  # share of the time left; seconds at most
_PACKING = 0.1, 8.0
_FAR = 1000  # between the seeds of rounds: lanes' seeds lie in between
_GROWTH = 0.5, 30.0  # it ends early where it does not help
_STEADY = 0.15, 10.0
_EXCHANGES = 0.5, 60.0
_PACKED_OPS, _FEWEST_PASSES = 200_000, 3  # ops of all passes together: some 6 s


class OtherWays:
    """What one lane may try. ``starts`` are valid schedules of different sources, best first."""

    def __init__(
        self,
        incumbent: Incumbent,
        starts: Sequence[Schedule],
        runner: Runner,
        *,
        seed: int,
        parts: SearchParts,
    ) -> None:
        self.incumbent, self.problem = incumbent, incumbent.problem
        self.starts = starts[:_STARTS]
        self.runner, self.clock = runner, runner.clock
        self.seed, self.parts = seed, parts

    def all(self) -> Iterator[Callable[[], None]]:
        """Yield what to try, one after the other, when windows do not help.

        The first of it, growth and packing, is worth trying before windows.
        """
        exchange = self.parts.exchanges and permutations_apply(self.problem)
        if exchange:
            yield self._exchange_microbatches
        yield self._grow_and_pack
        if self.parts.steady and not gains(self.problem):  # repetends have no pairs
            yield self._repeat_a_steady_state
        if self.parts.packing:
            yield self._pack_the_incumbent
            for turn in range(1, _ROUNDS):
                yield partial(self._pack_starts, self.seed + turn * _FAR)
                if exchange:
                    yield partial(self._exchange_microbatches, self.seed + turn * _FAR)

    def _exchange_microbatches(self, seed: int | None = None) -> None:
        """Let microbatches change places, in the starts and in the incumbent."""
        mine = [] if self.incumbent.schedule is None else [self.incumbent.schedule]
        for found in permuted_schedules(
            self.problem,
            [*mine, *self.starts],
            clock=self._part(_EXCHANGES),
            seed=self.seed if seed is None else seed,
        ):
            self.incumbent.offer_earliest(found)

    def _grow_and_pack(self) -> None:
        if self.parts.growth:
            self._grow()
        if self.parts.packing:
            self._pack_starts(self.seed)

    def _grow(self) -> None:
        """Offer what grows from schedules of few microbatches, and pack the best of it."""
        objective, best = self.incumbent.objective, None
        clock = self._part(_GROWTH)
        for order in grown_orders(
            self.problem, self.starts, objective, runner=self.runner, clock=clock, seed=self.seed
        ):
            timed = time_order(self.problem, order, objective, GROWTH)
            value = self.incumbent.offer_timed(timed)
            if value is not None and (best is None or value < best.value(objective)):
                best = timed
        if best is not None and not self.clock.over:
            self._pack(best, self.seed, _FIRST_PACKING)

    def _repeat_a_steady_state(self) -> None:
        for found in steady_schedules(
            self.problem, runner=self.runner, clock=self._part(_STEADY), seed=self.seed
        ):
            self.incumbent.offer_earliest(found)

    def _pack_starts(self, seed: int) -> None:
        for start in self.starts:
            if not self.clock.over:
                self._pack(start, seed, _FIRST_PACKING)

    def _pack_the_incumbent(self) -> None:
        if self.incumbent.schedule is not None:
            self._pack(self.incumbent.schedule, self.seed + 1, _PACKING)

    def _pack(self, schedule: Schedule, seed: int, limit: tuple[float, float]) -> None:
        """Pack a schedule, forward and backward alternately.

        A deterministic clock does not count it: its passes are limited, and short deterministic
        solves would do with far fewer of them and with less time for proofs.
        """
        for packed in justified(
            self.problem,
            schedule.order,
            seed=seed,
            clock=self._part(limit),
            counted=False,
            passes=max(_FEWEST_PASSES, _PACKED_OPS // self.problem.op_count),
            source=f"{schedule.source}, justified",
        ):
            self.incumbent.offer_earliest(packed)

    def _part(self, limit: tuple[float, float]) -> Clock:
        share, most = limit
        return self.clock.part(min(share * self.clock.left, most))
