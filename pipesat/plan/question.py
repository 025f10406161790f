"""What a plan is asked: layers, shapes, objective and what may recompute; its partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.core.claims import Bound
from pipesat.core.schedule import Objective
from pipesat.core.settings import RecomputeChoice
from pipesat.layers.layer import Layers
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.split import FORBIDDEN
from pipesat.layers.stages import problem_of_split
from pipesat.plan.bounds import stage_cost
from pipesat.plan.candidate import Candidate
from pipesat.plan.recompute import Flags, Recomputation

CostOfStage: TypeAlias = Callable[[int, int, int], int]
"""(begin, end, stage) -> what the closed forms say of that stage."""

_LARGEST_TABLE: Final = 4_000_000  # cells


@dataclass(frozen=True, eq=False)
class Question:
    """Layers to cut, shapes to cut them for, the objective and the choice of recomputation."""

    space: Recomputation
    shapes: tuple[Pipeline, ...]
    objective: Objective
    _costs: dict[int, CostOfStage] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        layers: Layers,
        shapes: Sequence[Pipeline],
        objective: Objective = "makespan",
        recompute: RecomputeChoice = "never",
    ) -> Question:
        """Return the question; layers lose the variants that the choice does not admit."""
        return cls(Recomputation.of(layers, recompute), tuple(shapes), objective)

    @property
    def layers(self) -> Layers:
        """The layers, with the variants that the choice admits."""
        return self.space.layers

    def made(
        self,
        shape: Pipeline,
        partition: tuple[range, ...],
        wanted: Flags = (),
        name: str = "",
        number: int = -1,
    ) -> Candidate:
        """Return a candidate; without the number of a shape, one that only stands for comparison.

        The only way to make one: what recomputes is what the choice allows.

        Raises
        ------
        BadInput
            If it breaks a flag or a tie.
        """
        flags = self.space.settled(shape, partition, wanted)
        problem = problem_of_split(self.layers, partition, shape, recompute=flags)
        bound = closed_form_bound(problem, self.objective)
        return Candidate(number, shape, partition, flags, problem, name, bound)

    def own_bound(self, number: int, partition: Sequence[range]) -> Bound:
        """What the closed forms of single stages say of a partition, whoever recomputes."""
        cost = self._cost_of(number)
        values = [cost(part.start, part.stop, stage) for stage, part in enumerate(partition)]
        known = (value for value in values if value < FORBIDDEN)
        return Bound(max(known, default=0), "closed form of one stage")

    def _cost_of(self, number: int) -> CostOfStage:
        """Cost of one stage in a shape, from a table of all if that is not too large."""
        if number not in self._costs:
            shape, count = self.shapes[number], len(self.layers)
            cost = stage_cost(self.layers, shape, self.objective)
            if shape.stages * (count + 1) ** 2 <= _LARGEST_TABLE:
                a, b = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
                tables = [
                    np.broadcast_to(cost(a, b, s), (count + 1, count + 1))
                    for s in range(shape.stages)
                ]
                self._costs[number] = lambda a, b, stage: int(tables[stage][a, b])
            else:
                self._costs[number] = lambda a, b, stage: int(
                    cost(np.array([[a]]), np.array([[b]]), stage)[0, 0]
                )
        return self._costs[number]
