"""The optimum of a small problem of any kind: a plain CP-SAT model, by the contract's words alone.

Memory is what intervals hold, from start to end; an op of no length is an instant that may not lie
strictly inside another op; a pair is a choice of two ops. Nothing is stronger than the contract.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from tests.oracle.reading import KEEP, KINDS, Op, Pipe, Route

Rows = list[list[tuple[str, int, int]]]


class Found(NamedTuple):
    """An optimal schedule: ``(text, start, end)`` per device, copies, and the mode of each."""

    value: int
    devices: Rows
    copies: Rows
    modes: dict[tuple[int, int], str]


class Undecided(AssertionError):
    """The effort allowed was not enough; ``found`` is the best schedule's value, if any."""

    def __init__(self, found: int | None) -> None:
        super().__init__(f"undecided, best found {found}")
        self.found = found


class _Run(NamedTuple):
    """When an op or copy runs, and whether it does."""

    start: Any
    end: Any
    runs: Any


class _Model:
    def __init__(self, pipe: Pipe, objective: str, at_most: int | None) -> None:
        self.pipe, self.cp = pipe, cp_model.CpModel()
        longest = pipe.horizon
        if at_most is not None and objective == "makespan":
            longest = min(longest, at_most)
        self.horizon = longest
        self.run: dict[Op, _Run] = {}
        self.use: dict[tuple[int, int], dict[str, Any]] = {}
        self.pairs: dict[tuple[Op, Op], Any] = {}
        self.before: dict[tuple[int, int, int], Any] = {}
        for s, m in pipe.modes:
            self._choose(s, m)
        self._pair()
        for number, route in enumerate(pipe.routes):
            self._wait(route)
            if route.listed and pipe.order != "free":
                self._keep_order(number, route)
        for device in pipe.devices:
            self._hold(device)
        self.value = self._value(objective)
        if at_most is not None:
            self.cp.add(self.value <= at_most)
        self.cp.minimize(self.value)

    def _time(self) -> Any:
        return self.cp.new_int_var(0, self.horizon, "")

    def _choose(self, s: int, m: int) -> None:
        """One mode, one way for the backward, and the copies of an offload mode."""
        cp, modes = self.cp, self.pipe.modes[s, m]
        use = {name: cp.new_bool_var("") for name in modes}
        self.use[s, m] = use
        cp.add_exactly_one(use.values())
        fused = cp.new_bool_var("")
        for name, amounts in modes.items():
            if amounts.backward in ("fused", "split"):
                cp.add_implication(use[name], fused if amounts.backward == "fused" else ~fused)
            if m and self.pipe.choice == "stage":
                cp.add(use[name] == self.use[s, 0][name])
        runs = {"F": cp.new_constant(1), "B": ~fused, "W": ~fused, "BW": fused}
        if modes[KEEP].backward == "none":
            runs |= dict.fromkeys(("B", "W", "BW"), cp.new_constant(0))
        for kind in KINDS:
            self.run[Op(s, kind, m)] = _Run(self._time(), self._time(), runs[kind])
        copies = {name: x.copies for name, x in modes.items() if x.copies}
        if not copies:
            return
        away = cp.new_bool_var("")
        cp.add(sum(use[name] for name in copies) == away)
        for place, kind in enumerate("OL"):
            run = _Run(self._time(), self._time(), away)
            self.run[Op(s, kind, m)] = run
            length = sum(times[place] * use[name] for name, times in copies.items())
            cp.add(run.end == run.start + length).only_enforce_if(away)
        forward, out, back = (self.run[Op(s, kind, m)] for kind in "FOL")
        cp.add(out.start >= forward.end).only_enforce_if(away)
        cp.add(back.start >= out.end).only_enforce_if(away)
        for kind in ("B", "BW"):
            own = self.run[Op(s, kind, m)]
            cp.add(own.start >= back.end).only_enforce_if(away, own.runs)

    def _both(self, *literals: Any) -> Any:
        found = self.cp.new_bool_var("")
        self.cp.add_bool_and(*literals).only_enforce_if(found)
        self.cp.add_bool_or([found, *(~one for one in literals)])
        return found

    def _pair(self) -> None:
        """Every op lasts its own time, or its pair's; one at a time on devices and channels."""
        cp, ops = self.cp, [op for op in self.run if op.kind in KINDS]
        partners: dict[Op, list[Any]] = defaultdict(list)
        second: dict[Op, list[Any]] = defaultdict(list)
        for one, other in combinations(ops, 2):
            times = self._times_together(one, other)
            if not times:
                continue
            pair = cp.new_bool_var("")
            self.pairs[one, other] = pair
            cp.add_bool_or([~pair, *(both for both, _ in times)])
            a, b = self.run[one], self.run[other]
            cp.add(a.start == b.start).only_enforce_if(pair)
            for op, run in ((one, a), (other, b)):
                cp.add_implication(pair, run.runs)
                partners[op].append(pair)
                for both, time in times:
                    cp.add(run.end == run.start + time).only_enforce_if(pair, both)
            second[other].append(pair)
        lanes: dict[tuple[int, str], list[Any]] = defaultdict(list)
        for op, (start, end, runs) in self.run.items():
            device = self.pipe.home[op.stage]
            if op.kind in KINDS:
                alone = [runs, *(~pair for pair in partners[op])]
                modes, use = self.pipe.modes[op[::2]], self.use[op[::2]]
                length = sum(modes[name].time[op.kind] * use[name] for name in modes)
                cp.add(end == start + length).only_enforce_if(*alone)
                if partners[op]:
                    cp.add_at_most_one(partners[op])
            counts = runs
            if second[op]:
                counts = cp.new_bool_var("")
                cp.add(counts + sum(second[op]) == runs)
            lane = "" if op.kind in KINDS else op.kind if self.pipe.channels[device] > 1 else "O"
            interval = cp.new_optional_interval_var(start, self._time(), end, counts, "")
            lanes[device, lane].append(interval)
        for intervals in lanes.values():
            cp.add_no_overlap(intervals)

    def _times_together(self, one: Op, other: Op) -> list[tuple[Any, int]]:
        """Times of a pair by literals of the modes; without those of no length, which is free."""
        found = []
        ours, theirs = self.pipe.modes[one[::2]], self.pipe.modes[other[::2]]
        for name, next_name in product(ours, theirs):
            time = self.pipe.together(one, other, ours[name], theirs[next_name])
            if time:
                both = self._both(self.use[one[::2]][name], self.use[other[::2]][next_name])
                found.append((both, time))
        return found

    def _wait(self, route: Route) -> None:
        for s, (m, kind) in product(route.stages, product(range(len(route.classes)), KINDS)):
            after = self.run[Op(s, kind, m)]
            for source, delay in self.pipe.waits(Op(s, kind, m)):
                before = self.run[source]
                self.cp.add(after.start >= before.end + delay).only_enforce_if(
                    before.runs, after.runs
                )
        alike: dict[tuple[int, ...], list[_Run]] = defaultdict(list)
        for members in route.sequences:
            key = tuple(id(route.classes[m]) for m in members)
            alike[key].append(self.run[Op(route.stages[0], "F", members[0])])
        for runs in alike.values():  # those of one class are numbered as they enter
            for one, other in pairwise(runs):
                self.cp.add(one.start <= other.start)

    def _keep_order(self, number: int, route: Route) -> None:
        """Forwards and backwards of every stage come by number, or in one order of all stages."""
        sequences = route.sequences
        for one, other in combinations(range(len(sequences)), 2):
            first = self.cp.new_bool_var("")
            self.before[number, one, other] = first
            if self.pipe.order == "given":
                self.cp.add(first == 1)
            turns = (one, other, first), (other, one, ~first)
            for s, (early, late, when) in product(route.stages, turns):
                for a, b in product(sequences[early], sequences[late]):
                    self._in_order(Op(s, "F", a), Op(s, "F", b), when)
                    for kinds in product(("B", "BW"), repeat=2):
                        self._in_order(Op(s, kinds[0], a), Op(s, kinds[1], b), when)

    def _in_order(self, one: Op, other: Op, when: Any) -> None:
        """One op starts when the other has ended, unless the two are a pair."""
        before, after = self.run[one], self.run[other]
        apart = [~self.pairs[two] for two in ((one, other), (other, one)) if two in self.pairs]
        self.cp.add(after.start >= before.end).only_enforce_if(
            when, before.runs, after.runs, *apart
        )

    def _hold(self, device: int) -> None:
        capacity = self.pipe.memory[device]
        if capacity is None:
            return
        held: list[Any] = []
        amounts: list[int] = []

        def hold(amount: int, start: Any, end: Any, when: Any) -> None:
            if amount:
                held.append(self.cp.new_optional_interval_var(start, self._time(), end, when, ""))
                amounts.append(amount)

        for (s, m), modes in self.pipe.modes.items():
            if self.pipe.home[s] != device:
                continue
            f, b, w, bw = (self.run[Op(s, kind, m)] for kind in KINDS)
            for name, x in modes.items():
                if x.backward == "none":
                    hold(x.a, f.start, f.end, self.use[s, m][name])
                    continue
                fused, split = (self._both(self.use[s, m][name], run.runs) for run in (bw, b))
                most = max(x.a, x.x)
                for when, back in ((fused, bw), (split, b)):
                    since = f.start
                    if x.copies:
                        out, load = self.run[Op(s, "O", m)], self.run[Op(s, "L", m)]
                        hold(x.a, f.start, out.end, when)
                        hold(x.copies[2], out.end, load.start, when)
                        since = load.start
                    hold(x.a, since, back.start, when)
                hold(most, bw.start, bw.end, fused)
                hold(max(most, x.w), b.start, b.end, split)
                hold(x.w, b.end, w.end, split)
        slack = capacity - self.pipe.static[device]
        if slack < 0:
            self.cp.add_bool_or([])
        elif held:
            self.cp.add_cumulative(held, amounts, slack)

    def _value(self, objective: str) -> Any:
        """The objective; copies do not count."""
        value = self._time()
        for device in self.pipe.devices:
            begin = 0 if objective == "makespan" else self._time()
            for op, run in self.run.items():
                if self.pipe.home[op.stage] == device and op.kind in KINDS:
                    self.cp.add(run.start >= begin).only_enforce_if(run.runs)
                    self.cp.add(value >= run.end - begin).only_enforce_if(run.runs)
        return value

    def found(self, solver: cp_model.CpSolver) -> Found:
        """The schedule of a solution; at one instant, what others wait for comes first."""
        pipe = self.pipe
        partner = {two[0]: two[1] for two, pair in self.pairs.items() if solver.value(pair)}
        entries = []
        for op, run in self.run.items():
            if solver.value(run.runs) and op not in partner.values():
                other = partner.get(op)
                text = str(op) if other is None else f"({op}+{other})"
                times = solver.value(run.start), solver.value(run.end)
                entries.append((times, self._rank(solver, op), op, text))
        devices: Rows = [[] for _ in pipe.devices]
        copies: Rows = [[] for _ in pipe.devices]
        for times, _, op, text in sorted(entries):
            rows = devices if op.kind in KINDS else copies
            rows[pipe.home[op.stage]].append((text, *times))
        modes = {
            key: name
            for key, use in self.use.items()
            for name, chosen in use.items()
            if name != KEEP and solver.value(chosen)
        }
        return Found(round(solver.objective_value), devices, copies, modes)

    def _rank(self, solver: cp_model.CpSolver, op: Op) -> tuple[int, int, int]:
        """How far along its way an op is, how many sequences, and slices, come before its own."""
        number, route = next(
            both for both in enumerate(self.pipe.routes) if op.stage in both[1].stages
        )
        place, last = route.stages.index(op.stage), len(route.stages)
        far = {"F": place, "O": place, "L": last, "W": 2 * last}.get(op.kind, 2 * last - 1 - place)
        own = op.microbatch // route.slices
        turn = sum(
            solver.value(first) == (own == other)
            for (of, one, other), first in self.before.items()
            if of == number and own in (one, other)
        )
        return far, turn, op.microbatch if op.kind == "F" else -op.microbatch


def solve(
    document: Mapping[str, Any],
    objective: str = "makespan",
    at_most: int | None = None,
    effort: float | None = None,
) -> Found | None:
    """Return an optimal schedule, or ``None`` if no schedule (of ``at_most``) is valid.

    ``effort`` limits CP-SAT's deterministic time, about seconds.

    Raises
    ------
    Undecided
        If that was not enough.
    """
    if at_most is not None and at_most < 0:
        return None
    model = _Model(Pipe(document), objective, at_most)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if effort is not None:
        solver.parameters.max_deterministic_time = effort
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return None
    if status != cp_model.OPTIMAL:
        found = round(solver.objective_value) if status == cp_model.FEASIBLE else None
        raise Undecided(found)
    return model.found(solver)


def optimum(
    document: Mapping[str, Any],
    objective: str = "makespan",
    at_most: int | None = None,
    effort: float | None = None,
) -> int | None:
    """Return the least makespan or span, or ``None`` if no schedule (of ``at_most``) is valid."""
    found = solve(document, objective, at_most, effort)
    return None if found is None else found.value
