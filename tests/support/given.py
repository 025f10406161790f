"""A known schedule in the model's terms: the values of its variables."""

from __future__ import annotations

from pipesat.core.ops import PHASE_OF, Op, Phase, members
from pipesat.core.schedule import Schedule
from pipesat.solver.model.variables import Literal, Task, Variables


class Given:
    """Starts, ends and truth values that a schedule gives to the model's variables.

    Microbatches are relabelled so that every stage runs each phase in microbatch order, as the
    model wants it (docs/proofs/model.md: this changes neither times nor memory).
    """

    def __init__(self, v: Variables, schedule: Schedule) -> None:
        self.unit = v.times.unit
        self.times: dict[tuple[Phase, int, int], tuple[int, int]] = {}
        self.literals: dict[int, bool] = {}
        rows: dict[tuple[Phase, int], list[tuple[int, int, Op]]] = {}
        for _, timed in schedule:
            for op in members(timed.item):  # type: ignore[arg-type]
                rows.setdefault((PHASE_OF[op.kind], op.stage), []).append(
                    (timed.start, timed.end, op)
                )
        for (phase, stage), row in rows.items():
            if phase == "W":
                continue
            for number, (start, end, op) in enumerate(sorted(row)):
                self.times[phase, stage, number] = (start // self.unit, end // self.unit)
                split = v.split[stage][number]
                if phase == "B" and not isinstance(split, bool):
                    self.literals[split.index] = op.kind == "B"
        for (phase, stage), row in rows.items():
            if phase == "W":
                numbers = [m for m, split in enumerate(v.split[stage]) if self.truth(split)]
                for number, (start, end, _) in zip(numbers, sorted(row), strict=False):
                    self.times[phase, stage, number] = (start // self.unit, end // self.unit)

    def fits(self, v: Variables) -> bool:
        """Whether the schedule has every task that the model has (it may fuse where we split)."""
        return all(
            task.present is not True or self._key(task) in self.times
            for stages in v.tasks.values()
            for tasks in stages
            for task in tasks
        )

    def start(self, task: Task) -> int:
        """Start in model time; of an absent W, right after its predecessor."""
        if self._key(task) in self.times:
            return self.times[self._key(task)][0]
        earlier: tuple[Phase, int, int] = ("W", task.stage, task.microbatch - 1)
        return self.times.get(earlier, (0, 0))[1] if task.microbatch else 0

    def end(self, task: Task) -> int:
        """End in model time."""
        return self.times.get(self._key(task), (0, 0))[1]

    def truth(self, literal: Literal) -> bool:
        """Value of a literal: a constant, a variable or a negation."""
        if isinstance(literal, bool):
            return literal
        index = literal.index
        return self.literals[index] if index >= 0 else not self.literals[-index - 1]

    @staticmethod
    def _key(task: Task) -> tuple[Phase, int, int]:
        return (task.phase, task.stage, task.microbatch)
