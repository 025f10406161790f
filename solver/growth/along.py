"""Modes along one order, by a model: those in which it fits into memory and takes the least time.

Nothing but modes is chosen, so the model has no choice of what comes first, and is solved fast. It
is the integer program of ELF's selective recomputation, with any modes, pairs and delays. Of copies
it knows that a backward waits for its own, and what they take in total. They change memory at once:
what comes out is timed with them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, product
from typing import NamedTuple, TypeAlias, cast

from ortools.sat.python import cp_model

from pipesat.problem.ops import PHASE_OF, Event, Item, members
from pipesat.problem.problem import Problem
from pipesat.problem.rules import duration, inputs_of, memory_in_order, offload_of
from pipesat.problem.variants import Key
from pipesat.schedule.schedule import Objective, Order
from pipesat.solver.growth.assign import in_items, in_modes
from pipesat.solver.lanes.runner import FOUND, Runner
from pipesat.solver.model.alternatives import Literal, Sum, conjunction
from pipesat.solver.model.times import latest_end

_Term: TypeAlias = tuple[int, cp_model.IntVar]


def _total(terms: Iterable[_Term]) -> cp_model.LinearExpr:
    terms = list(terms)
    return cp_model.LinearExpr.weighted_sum([x for _, x in terms], [c for c, _ in terms])


class _Run(NamedTuple):
    """What an item is in some modes: its ops in a row, where the literal holds."""

    chosen: cp_model.IntVar
    items: tuple[Item, ...]
    begins: tuple[int, ...]  # of each, after the item's start; the last is the length of all
    most: int  # memory taken while they run
    net: int  # memory held more after them


class ModesAlong:
    """An order whose modes are free; ``value`` is its objective, less than ``less_than``."""

    def __init__(
        self, problem: Problem, order: Order, less_than: int, objective: Objective
    ) -> None:
        self.problem, self.order = problem, order
        self.cp = cp_model.CpModel()
        self.modes: dict[Key, Sequence[cp_model.IntVar]] = {}
        self._of_stage: dict[int, Sequence[cp_model.IntVar]] = {}
        self._ends: dict[Event, cp_model.LinearExpr] = {}
        latest = latest_end(problem, objective, less_than - 1)
        self._starts = [[self.cp.new_int_var(0, latest, "") for _ in row] for row in order]
        self._runs = [[[*self._runs_of(item)] for item in row] for row in order]
        self.value = self.cp.new_int_var(0, less_than - 1, "")
        for device in range(len(order)):
            self._add_row(device, by_span=objective == "span")
            self._add_copies(device)
            if (slack := problem.devices[device].slack) is not None:
                self._add_memory(device, slack)
        every = [*zip(chain(*self._starts), chain(*self._runs), strict=True)]
        for start, runs in every:
            self._note_ends(start, runs)
        for start, runs in every:
            self._add_waiting(start, runs)
        self.cp.minimize(self.value)

    def _literals(self, key: Key) -> Sequence[cp_model.IntVar]:
        known = self.modes.get(key) or self._of_stage.get(key[0])
        if known is None:
            known = [self.cp.new_bool_var("") for _ in self.problem.modes_of(key[0])]
            self.cp.add_exactly_one(known)
            if self.problem.mode_choice == "stage":
                self._of_stage[key[0]] = known
        self.modes[key] = known
        return known

    def _runs_of(self, item: Item) -> Iterator[_Run]:
        """Yield an item in all modes of its microbatches, the first ones first."""
        keys = [op[::2] for op in members(item)]
        literals = [self._literals(key) for key in keys]
        for modes in product(*(range(len(each)) for each in literals)):
            chosen: Literal = True
            for each, mode in zip(literals, modes, strict=True):
                chosen = conjunction(self.cp, chosen, each[mode])
            items = in_items(self.problem, item, dict(zip(keys, modes, strict=True)))
            begins = tuple(accumulate((duration(self.problem, one) for one in items), initial=0))
            changes = [memory_in_order(self.problem, one) for one in items]
            held = [*accumulate((change.net for change in changes), initial=0)]
            most = max((h + c.at_start for h, c in zip(held, changes, strict=False)), default=0)
            yield _Run(cast("cp_model.IntVar", chosen), items, begins, most, held[-1])

    def _add_row(self, device: int, *, by_span: bool) -> None:
        """One item after the other."""
        starts = self._starts[device]
        ends = [
            start + _total((run.begins[-1], run.chosen) for run in runs)
            for start, runs in zip(starts, self._runs[device], strict=True)
        ]
        for start, end in zip(starts[1:], ends, strict=False):
            self.cp.add(start >= end)
        if ends:
            self.cp.add(self.value >= ends[-1] - (starts[0] if by_span else 0))

    def _add_copies(self, device: int) -> None:
        """A device's channels have time for all copies."""
        busy = defaultdict[int, list[_Term]](list)
        back = self.problem.devices[device].copy_channels - 1
        for run in chain(*self._runs[device]):
            for op in chain(*map(members, run.items)):
                copies = offload_of(self.problem, op) if op.kind == "F" else None
                if copies is not None:
                    busy[0].append((copies.time_out, run.chosen))
                    busy[back].append((copies.time_in, run.chosen))
        for terms in busy.values():
            self.cp.add(self.value >= _total(terms))

    def _add_memory(self, device: int, slack: int) -> None:
        """What is held, compared with all in their first modes, and what the next item takes."""
        first, more = 0, Counter[cp_model.IntVar]()
        for plain, *others in self._runs[device]:
            most = more.copy()
            for run in others:
                most[run.chosen] += run.most - plain.most
                more[run.chosen] += run.net - plain.net
            most, more = (Counter({k: c for k, c in each.items() if c}) for each in (most, more))
            taken = Sum(first + plain.most)
            for literal, change in most.items():
                taken.add(change, literal)
            taken.at_most(self.cp, slack, True)
            first += plain.net

    def _note_ends(self, start: cp_model.IntVar, runs: Sequence[_Run]) -> None:
        """Note when the forwards and backwards of an item end."""
        after = defaultdict[Event, list[_Term]](list)
        for run in runs:
            for item, end in zip(run.items, run.begins[1:], strict=True):
                for op in members(item):
                    if op.kind != "W":
                        event = op.stage, PHASE_OF[op.kind], op.microbatch
                        after[event].append((end, run.chosen))
        for event, terms in after.items():
            self._ends[event] = start + _total(terms)

    def _add_waiting(self, start: cp_model.IntVar, runs: Sequence[_Run]) -> None:
        """What an item's ops wait for has ended when they start, and has arrived."""
        before = defaultdict[Event, list[_Term]](list)
        for run in runs:
            for item, begin in zip(run.items, run.begins, strict=False):
                for op in members(item):
                    for source in inputs_of(self.problem, op) if op.kind != "W" else ():
                        before[source.event].append((source.delay - begin, run.chosen))
                    copies = offload_of(self.problem, op) if op.kind in ("B", "BW") else None
                    if copies is not None:
                        wait = copies.time_out + copies.time_in - begin
                        before[op.stage, "F", op.microbatch].append((wait, run.chosen))
        for event, terms in before.items():
            self.cp.add(start >= self._ends[event] + _total(terms))

    def solved(self, runner: Runner, *, limit: float, seed: int) -> Order | None:
        """Return the order in the best modes found; ``None`` if none was."""
        solver, status = runner.solve(self.cp, limit=limit, seed=seed)
        if status not in FOUND:
            return None
        chosen = {
            key: next(mode for mode, literal in enumerate(each) if solver.boolean_value(literal))
            for key, each in self.modes.items()
        }
        return in_modes(self.problem, self.order, chosen)
