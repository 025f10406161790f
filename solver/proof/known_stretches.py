"""What is known of the least values of stretches, and what follows for all others and the run."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain

from pipesat.solver.proof.stretches import Part

_SUMS = 512  # microbatches whose sums of steps are all tried


class StepBounds:
    """Lower bounds of steps, none of which is below ``floor``: they add up.

    With a pace of n, from any microbatch on some step of j <= n takes at least j / n of it.
    """

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        self.known: dict[int, int] = {}
        self.paces: dict[int, int] = {}
        self._sums = [0]

    def learn(self, n: int, value: int) -> None:
        """Take in a bound of a step of n microbatches."""
        self.known[n] = max(value, self.known.get(n, value))
        self._sums = [0]

    def learn_pace(self, n: int, value: int) -> None:
        """Take in a bound of a pace of n microbatches."""
        self.paces[n] = max(value, self.paces.get(n, value))

    @property
    def rate(self) -> Fraction:
        """The largest per microbatch: no run goes on at less."""
        known = chain(self.known.items(), self.paces.items())
        return max((Fraction(value, n) for n, value in known), default=Fraction(0))

    def pace(self, n: int) -> int:
        """Return the best bound of a pace: what holds for fewer microbatches holds for more."""
        known = chain(self.known.items(), self.paces.items())
        return max((n * value // j for j, value in known if j <= n), default=self.floor)

    def of(self, n: int) -> int:
        """Return the best bound of one: paces as long as there is one, then steps."""
        paced = (
            min(-(-(n - i) * value // size) + self._of_steps(i) for i in range(size))
            for size, value in self.paces.items()
            if size <= n
        )
        return max([self._of_steps(n), *paced])

    def _of_steps(self, n: int) -> int:
        """Return the largest sum of known steps of n together.

        Beyond some length, all but the rest is the step that is largest for its length.
        """
        if not self.known:
            return self.floor if n else 0
        size = max(self.known, key=lambda j: self.known[j] / j)
        if times := max(0, n - _SUMS) // size:
            return times * self.known[size] + self._of_steps(n - times * size)
        for size in range(len(self._sums), n + 1):
            sums = (self._sums[size - j] + value for j, value in self.known.items() if j <= size)
            self._sums.append(max(sums, default=self.floor))
        return self._sums[n]


class KnownStretches:
    """Least values of stretches, no step below ``floor``. Other parts and steps add up."""

    def __init__(self, floor: int) -> None:
        self.steps = StepBounds(floor)
        self.ends: dict[Part, dict[int, int]] = {"first": {0: 0}, "last": {}}

    def learn(self, part: Part, n: int, value: int) -> None:
        """Take in a bound."""
        if part == "step":
            self.steps.learn(n, value)
        elif part == "pace":
            self.steps.learn_pace(n, value)
        else:
            self.ends[part][n] = max(value, self.ends[part].get(n, value))

    def of(self, part: Part, n: int) -> int:
        """Return the best bound of a stretch."""
        if part == "step":
            return self.steps.of(n)
        if part == "pace":
            return self.steps.pace(n)
        sums = (value + self.steps.of(n - k) for k, value in self.ends[part].items() if k <= n)
        return max(sums, default=self.steps.floor)

    def whole(self, n: int) -> int:
        """Return the bound that follows for a run of n microbatches."""
        sums = (
            start + self.steps.of(n - i - j) + end
            for i, start in self.ends["first"].items()
            for j, end in self.ends["last"].items()
            if i + j <= n
        )
        return max([0, *sums])
