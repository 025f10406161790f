"""Models with memory over time: of the whole problem, and of one device alone.

They are made of the passages of microbatches through some stages, pairs, order, devices and their
channels; what may be ordered without loss stands in docs/proofs/search.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise, product
from typing import Final, TypeAlias, cast
from typing import Literal as OneOf

from ortools.sat.python import cp_model

from pipesat.problem.ops import PHASES, Copy, Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, in_order, inputs_of
from pipesat.problem.variants import Variant
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy
from pipesat.solver.model.alternatives import (
    Candidate,
    Literal,
    PairChoices,
    Part,
    Running,
    add_pair_choices,
    choice_of,
)
from pipesat.solver.model.pairing import Gains, gains, time_that_gains, useful_variants
from pipesat.solver.model.passages import Holding, Passage, holdings, lengths
from pipesat.solver.model.turns import Turns, add_turns, chains, classes_of

Time: TypeAlias = cp_model.LinearExpr | int
"""A sum of variables, or a time that is known."""

TRIP: Final[tuple[Part, ...]] = ("F", "O", "L", "B")
"""What an offloaded microbatch runs one after the other."""
PARTS: Final[tuple[Part, ...]] = (*TRIP, "W")
BY_RULE: Final[tuple[OneOf["F"], OneOf["B"]]] = ("F", "B")


class OverTime:
    """Passages of some stages, all parts within ``[0, latest]``; ``choices`` are the pairs."""

    def __init__(self, problem: Problem, stages: Collection[int], latest: int) -> None:
        self.problem, self.latest = problem, latest
        self.cp = cp_model.CpModel()
        self.known = gains(problem)
        self.passages = {
            (stage, m): self._passage(stage, m)
            for stage in stages
            for m in range(problem.microbatches[stage])
        }
        tasks = [task for one in self.passages.values() for task in one.tasks.values()]
        candidates = _candidates(problem, self.known, self.passages.values())
        self.choices: PairChoices[Running] = add_pair_choices(
            self.cp, candidates, tasks, lambda _: latest
        )
        for passage in self.passages.values():
            self._add_sequence(passage.tasks)
        self.turns = Turns()

    def _passage(self, stage: int, microbatch: int) -> Passage:
        """Any variant, and parts that start at any time."""
        problem, cp = self.problem, self.cp
        kind = problem.class_of(stage, microbatch)
        own = useful_variants(problem, stage, kind, self.known)
        passage = Passage(choice_of(cp, stage, microbatch, own))
        for part in PARTS:
            if alternatives := passage.choice.alternatives(cp, problem, part):
                present = passage.choice.present(cp, part)
                task = Running(alternatives=alternatives, present=present)
                task.begin(cp, cp.new_int_var(0, self.latest, ""))
                passage.tasks[part] = task
        return passage

    def _add_sequence(self, tasks: Mapping[Part, Running]) -> None:
        """F, the copies, the backward and W run one after the other, as far as they are there."""
        if "W" in tasks:
            self.cp.add(tasks["W"].start >= tasks["B"].end)
        if "O" in tasks:
            for one, two in pairwise(TRIP):
                later = self.cp.add(tasks[two].start >= tasks[one].end)
                later.only_enforce_if(tasks["O"].present)

    def add_dataflow(self) -> None:
        """Every F and backward waits for its input and the input's travel."""
        for (stage, microbatch), passage in self.passages.items():
            for kind in (kind for kind in BY_RULE if kind in passage.tasks):
                for event, delay in inputs_of(self.problem, Op(stage, kind, microbatch)):
                    source = self.passages[event[0], event[2]].tasks[event[1]]
                    self.cp.add(passage.tasks[kind].start >= source.end + delay)

    def add_rules(self, stages: Iterable[int]) -> None:
        """The file's rules for the order of microbatches, and for one mode per stage."""
        self.turns = add_turns(self.cp, self.problem)
        for stage in stages:
            self._add_rule(stage)
            if self.problem.mode_choice == "stage":
                self._add_one_mode(stage)

    def row(self, stage: int, microbatches: Iterable[int] | None = None) -> list[Passage]:
        """Passages of a stage, by number."""
        if microbatches is None:
            microbatches = range(self.problem.microbatches[stage])
        return [self.passages[stage, m] for m in microbatches]

    def alike(self, stage: int) -> list[list[int]]:
        """Microbatches of a stage's route that nothing but their numbers tells apart, in lists."""
        return classes_of(self.problem.route(stage))

    def add_order(self, passages: Sequence[Passage], part: Part) -> None:
        """Let a part that all passages have run in their order, or two of them as a pair."""
        for one, two in pairwise(passages):
            self._add_before(one.tasks[part], two.tasks[part])

    def _add_before(
        self, x: Running, y: Running, *conditions: Literal, length: int | None = None
    ) -> None:
        """One ends before the other starts, or they are a pair, where the conditions hold.

        ``length`` is that of the first alone, if the conditions say it.
        """
        end = x.end if length is None else self.choices.end_of(x, length)
        found = self.cp.add(y.start >= end)
        apart = (~pair for pair in self.choices.together(x, y))
        if literals := [*conditions, *apart]:
            found.only_enforce_if(*literals)

    def _add_rule(self, stage: int) -> None:
        """The file's rule for the order of a route's microbatches that are a list."""
        number = self.problem.route_of[stage]
        if self.problem.routes[number].classes is None or self.problem.order == "free":
            return
        for part in BY_RULE if self.problem.stages[stage].has_backward else BY_RULE[:1]:
            for numbers in chains(self.problem, stage, part):
                self.add_order(self.row(stage, numbers), part)
            for one, other, first in self.turns.of(number):
                for x, y, literal in ((one, other, first), (other, one, ~first)):
                    last = self.passages[stage, self.turns.ends(number, x, part)[1]].tasks[part]
                    then = self.passages[stage, self.turns.ends(number, y, part)[0]].tasks[part]
                    self._add_before(last, then, cast(Literal, literal))

    def _add_one_mode(self, stage: int) -> None:
        """All microbatches of the stage run in one mode."""
        for one, two in pairwise(self.row(stage)):
            for mode in self.problem.modes_of(stage):
                self.cp.add(one.runs_in(mode) == two.runs_in(mode))

    def add_order_of_a_variant(self, stages: Sequence[int], parts: Iterable[Part]) -> None:
        """Let parts run by number among alike microbatches in equal variants on all the stages."""
        parts = tuple(parts)
        for microbatches in self.alike(stages[0]):
            for one, two in combinations(microbatches, 2):
                both = [(self.passages[s, one], self.passages[s, two]) for s in stages]
                for own in product(*(x.chosen for x, _ in both)):
                    self._add_alike(both, own, parts)

    def _add_alike(
        self,
        both: Sequence[tuple[Passage, Passage]],
        own: Sequence[Variant],
        parts: Sequence[Part],
    ) -> None:
        """Two microbatches on some stages, in these variants there."""
        chosen = [
            passage.chosen[variant]
            for passages, variant in zip(both, own, strict=True)
            for passage in passages
        ]
        for (x, y), variant in zip(both, own, strict=True):
            for part, length in lengths(variant).items():
                if part in parts:
                    self._add_before(x.tasks[part], y.tasks[part], *chosen, length=length)

    def channels(self, device: int) -> list[tuple[Part, ...]]:
        """What each copy channel of a device runs."""
        return [("O", "L")] if self.problem.devices[device].copy_channels == 1 else [("O",), ("L",)]

    def add_device(self, device: int) -> None:
        """Let a device run one item at a time, each channel one copy, within memory over time."""
        own = [one for stage in self.problem.stages_on[device] for one in self.row(stage)]
        for parts in (PHASES, *self.channels(device)):
            tasks = [one.tasks[part] for one in own for part in parts if part in one.tasks]
            self.cp.add_no_overlap(interval for task in tasks for interval in task.intervals)
        slack = self.problem.devices[device].slack
        if slack is None:
            return
        held = [
            (self._held(passage, holding, chosen), holding.amount)
            for passage in own
            for variant, chosen in passage.chosen.items()
            for holding in holdings(variant)
        ]
        self.cp.add_cumulative([one for one, _ in held], [amount for _, amount in held], slack)

    def _held(self, passage: Passage, holding: Holding, chosen: Literal) -> cp_model.IntervalVar:
        """What is held from a part's start, or B's end until W's, to a part's end."""
        begin, end = passage.tasks[holding.begin], passage.tasks[holding.end]
        low: Time = begin.start
        if holding.end == "W":
            low = self.choices.end_of(begin, holding.offset)
        if begin is end and not self.choices.partners(begin):
            return self.cp.new_optional_fixed_size_interval_var(low, holding.length, chosen, "")
        between, high = (
            self.cp.new_int_var(0, self.latest, ""),
            self.choices.end_of(end, holding.length),
        )
        return self.cp.new_optional_interval_var(low, between, high, chosen, "")

    def add_end(self, passage: Passage, end: Time) -> None:
        """Let nothing of a passage end later."""
        self.cp.add(passage.tasks["B" if "B" in passage.tasks else "F"].end <= end)
        if (weight := passage.tasks.get("W")) is not None:
            last = self.cp.add(weight.end <= end)
            if weight.present is not True:
                last.only_enforce_if(weight.present)

    def add_load(self, device: int, begin: Time, end: Time) -> None:
        """Say that a device's work, less what its pairs save, takes its time.

        It follows from the rest, but no-overlap does not see it.
        """
        stages = self.problem.stages_on[device]
        work: list[Time] = [
            variant.work * chosen
            for stage in stages
            for passage in self.row(stage)
            for variant, chosen in passage.chosen.items()
        ]
        work += self.choices.saved(stages, partial(duration, self.problem))
        self.cp.add(sum(work) <= end - begin)

    def schedule(self, solver: cp_model.CpSolver, source: str) -> Schedule:
        """Read a solution.

        At one instant, what takes no time comes first, then what comes first in a microbatch, then
        what comes first in the order of microbatches.
        """
        problem = self.problem
        pairs = [pair for pair in self.choices.all if solver.boolean_value(pair.literal)]
        paired = {op: pair for pair in pairs for op in pair.ops}
        rows: list[list[tuple[tuple[int, ...], Op]]] = [[] for _ in problem.devices]
        copies: list[list[TimedCopy]] = [[] for _ in problem.devices]
        turn = self.turns.places(problem, solver.value)
        for (stage, m), passage in self.passages.items():
            device, place = problem.stages[stage].device, problem.place_of[stage]
            for part, task in passage.tasks.items():
                chosen = (one for one in task.alternatives if solver.boolean_value(one.chosen))
                if (one := next(chosen, None)) is None:
                    continue
                start, end = solver.value(task.start), solver.value(task.start) + one.length
                if part in ("O", "L"):
                    copies[device].append(TimedCopy(Copy(stage, part, m), start, end))
                    continue
                if one.op in paired:
                    end = start + paired[one.op].time
                step = 1 if part == "F" else -1
                number, at = divmod(turn[stage][m], problem.slices_of[stage])
                flow = ("FBW".index(part), step * place, number, step * at)
                rows[device].append(((start, end, *flow), one.op))

        def items(row: list[tuple[tuple[int, ...], Op]]) -> Iterator[Timed]:
            for (start, end, *_), op in sorted(row):
                if op not in paired:
                    yield Timed(op, start, end)
                elif op == paired[op].ops[0]:
                    yield Timed(in_order(problem, Pair(*paired[op].ops)), start, end)

        for own in copies:
            own.sort(key=lambda x: (x.start, x.end, cast(Copy, x.copy).kind == "L"))
        timed = tuple(map(tuple, copies)) if any(copies) else ()
        return Schedule(tuple(tuple(items(row)) for row in rows), source, timed)


def _candidates(
    problem: Problem, known: Gains, passages: Iterable[Passage]
) -> Iterator[Candidate[Running]]:
    """All pairs that gain something, in every two modes of their members."""
    if not known:
        return
    tasks = [one.tasks[part] for one in passages for part in PHASES if part in one.tasks]
    for x, y in combinations(tasks, 2):
        for one, other in product(x.alternatives, y.alternatives):
            if (one.op[:2], other.op[:2]) in known:
                time = time_that_gains(problem, known, one.op, other.op)
                if time is not None:
                    yield (x, y), (one.op, other.op), time
