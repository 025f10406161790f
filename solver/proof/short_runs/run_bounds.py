"""What is known of steps and of makespans of few microbatches, and what follows from it."""

from __future__ import annotations

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.problem import Problem
from pipesat.solver.model.left_out import with_microbatches


class RunBounds:
    """Lower bounds of e(n) and f(n), for a problem of a single route.

    Steps add up, e(i + j) >= e(i) + e(j), and f(i + j) >= e(i) + f(j).
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.steps: dict[int, int] = {}
        self.makespans: dict[int, int] = {}
        self._sums = [0]

    def learn_step(self, n: int, value: int) -> None:
        """Take in a bound of e(n)."""
        self.steps[n] = max(value, self.steps.get(n, 0))
        self._sums = [0]

    def learn_makespan(self, n: int, value: int) -> None:
        """Take in a bound of f(n)."""
        self.makespans[n] = max(value, self.makespans.get(n, 0))

    def step(self, n: int) -> int:
        """Return the best bound of e(n): the largest sum of known steps of n together."""
        for size in range(len(self._sums), n + 1):
            sums = (self._sums[size - j] + value for j, value in self.steps.items() if j <= size)
            self._sums.append(max(sums, default=0))
        return self._sums[n]

    def makespan(self, n: int) -> int:
        """Return the best bound of f(n), the closed forms' included."""
        if n not in self.makespans:
            few = with_microbatches(self.problem, [n])
            self.makespans[n] = closed_form_bound(few, "makespan").value
        return max(self.step(n - j) + value for j, value in self.makespans.items() if j <= n)

    def sharp_steps(self, most: int) -> list[tuple[int, int]]:
        """Return the steps of at most so many microbatches that no shorter ones imply."""
        return [
            (n, value)
            for n, value in sorted(self.steps.items())
            if n <= most
            and value > max((self.step(i) + self.step(n - i) for i in range(1, n)), default=0)
        ]
