"""The joint search over shapes, partitions, recomputation and orders.

1. Every shape gets a bound over all of its partitions (:mod:`pipesat.plan.bounds`).
2. Proposals of exact programmes under several stand-ins are evaluated with a few greedy orders.
3. The best are improved by moving one layer, or by turning one stage's recomputation over.
4. Where they are few, all partitions that closed forms leave below the best value are listed.
5. Survivors are solved, in rounds with ever fewer of them and ever more time.

Whatever has a bound at or above the best value is passed over: it cannot be better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product, zip_longest
from math import prod
from typing import Final

from pipesat.bounds.one_device import closed_form_bound
from pipesat.core.errors import BadInput, Infeasible
from pipesat.layers.rules import neighbours
from pipesat.layers.split import FORBIDDEN, LARGEST_COST
from pipesat.layers.stages import problem_of_split
from pipesat.plan.bounds import flags_below, partitions_below, shape_bound
from pipesat.plan.candidate import Candidate
from pipesat.plan.cheapest_layers import cheapest
from pipesat.plan.known import LEAST_SECONDS, Known
from pipesat.plan.proposals import Proposal, proposals
from pipesat.plan.shapes import shape_name

_WIDTH: Final = 4  # candidates whose neighbours are looked at
_SURVIVORS: Final = 8  # in the first round of solves
_ROUNDS: Final = 4
_MOST_LISTED: Final = 4000  # partitions of a shape below the best value
_MOST_CHOICES: Final = 32  # of recomputation, of one partition
_FINALISTS: Final = 2
_FOR_FINALISTS: Final = 0.1  # of the time that is left, for each
_MOVED: Final = 0.7  # of what is left after a pass, kept for listing and solves
_REST: Final = 0.5  # for solves
_UNTIL: Final[Mapping[str, float]] = {
    "propose": 0.25,
    "move": 0.4,
    "list": 0.55,
}  # parts of the time limit


class Search(Known):
    """The phases, in their order; each ends with its part of the time, or when it is done."""

    most_listed: int = _MOST_LISTED
    width: int = _WIDTH
    until: Mapping[str, float] = _UNTIL

    def bound_shapes(self) -> None:
        """Bound every shape over all of its partitions.

        Raises
        ------
        Infeasible
            If no partition of any shape fits into memory.
        """
        for state in self.states:
            try:
                state.bound = shape_bound(self.layers, state.shape, self.objective)
            except (BadInput, Infeasible) as error:
                if isinstance(error, BadInput) and len(self.states) == 1:
                    raise
                state.why_not = str(error)
        self._require_possible()

    def _require_possible(self) -> None:
        if all(state.why_not for state in self.states):
            reasons = {state.why_not: shape_name(state.shape) for state in self.states}
            if len(reasons) == 1:
                raise Infeasible(*reasons)
            raise Infeasible("; ".join(f"{name}: {why}" for why, name in reasons.items()))

    def propose(self) -> None:
        """Evaluate proposals of all shapes in turns."""
        streams = [self._proposals(number) for number, s in enumerate(self.states) if not s.why_not]
        for row in zip_longest(*streams):
            for candidate in row:
                if candidate is not None and self.beatable(candidate.bound.value):
                    self.evaluate(candidate, 1)
                if self.best is not None and self._late("propose"):
                    return

    def _proposals(self, number: int) -> Iterator[Candidate | None]:
        for proposal in proposals(self.space, self.shapes[number], self.objective):
            yield self.consider(number, *proposal)

    def move(self) -> None:
        """Move one layer, or turn one stage's recomputation over, as long as that helps."""
        while not self._late("move"):
            known = sorted((c for c in self.candidates if c.schedules), key=self._promise)
            pending = next((c for c in known[: self.width] if not c.expanded), None)
            if pending is None or not self.beatable(self._least_bound()):
                return
            self._expand(pending)

    def _least_bound(self) -> int:
        """What nothing is below, as far as is known."""
        bound = self.bound
        return 0 if bound is None else bound.value

    def _expand(self, candidate: Candidate) -> None:
        """Evaluate the neighbours, those of least bound first; stop at the first better one."""
        before, around = self.value, []
        for proposal in self._around(candidate):
            near = self.consider(candidate.shape_number, *proposal)
            if near is not None and near.effort == 0 and self.beatable(near.bound.value):
                around.append(near)
            if self._late("move"):
                return
        for near in sorted(around, key=self._promise):
            if self.beatable(near.bound.value):
                self.evaluate(near, 1)
            if self._late("move") or self.value != before:
                return
        candidate.expanded = True

    def _around(self, candidate: Candidate) -> Iterator[Proposal]:
        name = candidate.proposed_by.removesuffix(", moved") + ", moved"
        if all(candidate.partition):
            for partition in neighbours(self.layers, candidate.partition, candidate.shape):
                yield Proposal(partition, candidate.recompute, name)
        for flags in self.space.flips(candidate.partition, candidate.recompute):
            yield Proposal(candidate.partition, flags, name)

    def list_all(self) -> None:
        """List every partition that closed forms leave below the best value, where they are few.

        Raises
        ------
        Infeasible
            If that shows that none fits into memory.
        """
        if self.value is None:
            self._rule_out()
        for number, state in enumerate(self.states):
            value = self.value
            if state.bound is None or value is None or not self.beatable(state.bound.value):
                continue
            if state.listed is not None and value <= state.listed:
                continue
            found = partitions_below(self.layers, state.shape, self.objective, value)
            if found is None or not self._listed(number, found, value):
                continue
            state.listed = value
        for candidate in self.unresolved():
            if self._late("list"):
                return
            if candidate.effort == 0 and self.beatable(candidate.bound.value):
                self.evaluate(candidate, 1)

    def _rule_out(self) -> None:
        """Without any schedule yet: find the shapes in which none of all partitions fits."""
        for number, state in enumerate(self.states):
            if state.why_not or self._some_candidate(number):
                continue
            found = partitions_below(self.layers, state.shape, self.objective, LARGEST_COST)
            if found is None or not self._listed(number, found, LARGEST_COST):
                continue
            if not state.unsolved and not self._some_candidate(number):
                state.why_not = "no partition fits into memory: every one was looked at"
        self._require_possible()

    def _some_candidate(self, number: int) -> bool:
        return any(candidate.shape_number == number for candidate in self.candidates)

    def _listed(self, number: int, found: Iterator[tuple[range, ...] | None], value: int) -> bool:
        """Make candidates of all; whether that was possible."""
        state = self.states[number]
        rest: list[int] = []
        count = 0
        for partition in found:
            if count >= self.most_listed or self._late("list"):
                return False
            if partition is None:
                continue
            count += 1
            if not self.space.free:
                self.consider(number, partition, (), "one of all")
                continue
            allowed = flags_below(self.layers, state.shape, self.objective, partition, value)
            if prod(map(len, allowed)) > _MOST_CHOICES:
                rest.append(self._least_of(number, partition))
                continue
            for flags in product(*allowed):
                self.consider(number, partition, flags, "one of all")
        state.rest = rest
        return True

    def _least_of(self, number: int, partition: tuple[range, ...]) -> int:
        """A bound for all choices of recomputation on a partition."""
        own = self.own_bound(number, partition).value
        if not self.beatable(own):
            return own
        try:
            least = problem_of_split(cheapest(self.layers), partition, self.shapes[number])
        except BadInput:  # tied layers on two devices
            return FORBIDDEN
        return max(own, closed_form_bound(least, self.objective).value)

    def polish(self) -> None:
        """Make every hand-written schedule of the two most promising partitions."""
        for candidate in self.unresolved()[:_FINALISTS]:
            self.evaluate(candidate, 2, _FOR_FINALISTS * self.left)

    def go_on(self) -> None:
        """With time left and no proof: move more, list more, and solve what is new."""
        while self.left > LEAST_SECONDS and self._unlisted():
            self.most_listed, self.width = 4 * self.most_listed, 4 * self.width
            left = self.left / self.time_limit
            self.until = {
                "propose": 1 - _MOVED * left,
                "move": 1 - _MOVED * left,
                "list": 1 - _REST * left,
            }
            known = len(self.memo)
            self.propose()
            self.move()
            self.list_all()
            self.solve_survivors()
            if len(self.memo) == known and self._unlisted():
                return

    def _unlisted(self) -> bool:
        """Whether a shape that may hold something better has partitions that nobody looked at."""
        return not all(self.accounted_for(number) for number in range(len(self.states)))

    def solve_survivors(self) -> None:
        """Solve the most promising in rounds: ever fewer of them, ever more time for each."""
        width, rounds = _SURVIVORS, _ROUNDS
        while self.left > LEAST_SECONDS and (chosen := self.unresolved()[:width]):
            for place, candidate in enumerate(chosen):
                if self.left <= LEAST_SECONDS:
                    return
                if self.beatable(candidate.bound.value):
                    self.solve(candidate, self.left / (rounds * (len(chosen) - place)))
            width, rounds = max(1, width // 2), max(1, rounds - 1)

    def _late(self, phase: str) -> bool:
        return self.stop.is_set() or self.seconds > self.until[phase] * self.time_limit
