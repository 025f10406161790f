"""The optimum of a small problem: a plain CP-SAT model by instants, written from the contract.

Memory is what intervals hold, [start, end); an op of length 0 is an instant that may not lie
strictly inside another op; pairs are a choice per two ops of a device.

The horizon loses nothing: in a feasible schedule, keep on every device the order of all starts and
ends, equal ones equal. The least times that obey this are longest paths over durations and delays,
so none exceeds the sum of all, and no interval of memory covers what it did not cover before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any

from ortools.sat.python import cp_model

from campaign.judge import values
from campaign.judge.amounts import KEEP
from campaign.judge.bounds import lower_bound
from campaign.judge.reading import KINDS, Pipe
from campaign.judge.rules import broken_rules
from campaign.judge.scale import common_divisor, divided
from campaign.judge.timed import Op, op_text, read_timed
from campaign.judge.timing import retimed

LARGEST = 10**7
"""The horizon up to which CP-SAT is given the times as they are."""


@dataclass(frozen=True)
class Truth:
    """What is known about an optimum: ``lower <= optimum <= upper``; ``None``: not known.

    ``feasible`` and ``upper`` hold by ``schedule``, which the rules have passed.
    """

    lower: int
    upper: int | None = None
    feasible: bool | None = None
    schedule: dict[str, Any] | None = None

    @property
    def exact(self) -> bool:
        return self.feasible is False or self.upper == self.lower


@dataclass
class _Run:
    """One op's or copy's variables; ``runs`` is None where it always runs."""

    start: Any
    end: Any
    length: Any
    runs: Any


class _Model:
    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.cp = pipe, cp_model.CpModel()
        self.horizon = horizon(pipe)
        self.run: dict[Op, _Run] = {}
        self.pairs: dict[tuple[Op, Op], Any] = {}
        self.fused: dict[tuple[int, int], Any] = {}
        self.use: dict[tuple[int, int], dict[str, Any]] = {}
        self.copies: dict[tuple[int, int, str], _Run] = {}
        self.before: dict[tuple[int, int, int], Any] = {}
        self.routes_of = {s: (r, m) for r, m in pipe.routes for s in r}
        self.add_ops()
        self.add_copies()
        self.add_pairs()
        self.add_waits()
        for route in range(len(pipe.routes)):
            self.add_order(route)
        for device in range(pipe.devices):
            self.add_turns(device)
            self.add_memory(device)

    def var(self, name: str) -> Any:
        return self.cp.new_int_var(0, self.horizon, name)

    def add_ops(self) -> None:
        for s in range(len(self.pipe.stages)):
            for m in range(self.routes_of[s][1]):
                fused = self.cp.new_bool_var(f"{s}fused{m}")
                self.fused[s, m] = fused
                modes = self.pipe.modes(s, m)
                use = {name: self.cp.new_bool_var(f"{s}{name}{m}") for name in modes}
                self.use[s, m] = use
                self.cp.add_exactly_one(use.values())
                for name, data in modes.items():
                    if not data.may_fuse:
                        self.cp.add_implication(use[name], ~fused)
                    if not data.may_split:
                        self.cp.add_implication(use[name], fused)
                    if m and self.pipe.mode_choice == "stage":
                        self.cp.add(use[name] == self.use[s, 0][name])
                for kind, runs in (("F", None), ("B", ~fused), ("W", ~fused), ("BW", fused)):
                    op = Op(s, kind, m)
                    start, end = self.var(f"start {op_text(op)}"), self.var(f"end {op_text(op)}")
                    length = sum(getattr(data, kind) * use[name] for name, data in modes.items())
                    self.run[op] = _Run(start, end, length, runs)

    def add_copies(self) -> None:
        """O after F, L after O, the backward after L; those of a channel in turn."""
        for (s, m), use in self.use.items():
            found = {n: d.copies for n, d in self.pipe.modes(s, m).items() if d.copies is not None}
            if not found:
                continue
            runs = self.cp.new_bool_var("")
            self.cp.add(sum(use[name] for name in found) == runs)
            for place, kind in enumerate("OL"):
                length = sum(times[place] * use[name] for name, times in found.items())
                run = _Run(self.var(""), self.var(""), length, runs)
                self.cp.add(run.end == run.start + length)
                self.copies[s, m, kind] = run
            out, load = self.copies[s, m, "O"], self.copies[s, m, "L"]
            self.cp.add(out.start >= self.run[Op(s, "F", m)].end).only_enforce_if(runs)
            self.cp.add(load.start >= out.end).only_enforce_if(runs)
            for kind in ("B", "BW"):
                back = self.run[Op(s, kind, m)].start
                self.cp.add(back >= load.end).only_enforce_if(runs)
        for one, other in combinations(self.copies, 2):
            device = self.pipe.stages[one[0]].device
            shared = one[2] == other[2] or self.pipe.channels[device] == 1
            if shared and device == self.pipe.stages[other[0]].device:
                self.in_turn(self.copies[one], self.copies[other], [])

    def in_turn(self, a: _Run, b: _Run, unless: list[Any]) -> None:
        first, second = self.cp.new_bool_var(""), self.cp.new_bool_var("")
        self.cp.add(a.end <= b.start).only_enforce_if(first)
        self.cp.add(b.end <= a.start).only_enforce_if(second)
        absent = [~run.runs for run in (a, b) if run.runs is not None]
        self.cp.add_bool_or([first, second, *absent, *unless])

    def add_order(self, number: int) -> None:
        """One order of the microbatches of a route that is a list, as `order` says."""
        route, microbatches = self.pipe.routes[number]
        if self.pipe.classes[number] is None or self.pipe.order == "free":
            return
        for one, other in combinations(range(microbatches), 2):
            first = self.cp.new_bool_var(f"{one} before {other} on route {number}")
            self.before[number, one, other] = first
            if self.pipe.order == "given":
                self.cp.add(first == 1)
            for s, (a, b, when) in product(route, ((one, other, first), (other, one, ~first))):
                self.in_order(Op(s, "F", a), Op(s, "F", b), [when])
                for kind in ("B", "BW"):
                    for earlier, fused in (("BW", self.fused[s, a]), ("B", ~self.fused[s, a])):
                        self.in_order(Op(s, earlier, a), Op(s, kind, b), [when, fused])

    def in_order(self, before: Op, after: Op, when: list[Any]) -> None:
        """One op starts when the other has ended, unless the two are a pair."""
        both = ((before, after), (after, before))
        apart = [~self.pairs[two] for two in both if two in self.pairs]
        ended = self.run[before].end
        self.cp.add(self.run[after].start >= ended).only_enforce_if(*when, *apart)

    def add_pairs(self) -> None:
        """Every op lasts its own time, or its pair's."""
        partners: dict[Op, list[Any]] = {op: [] for op in self.run}
        for one, other in combinations(self.run, 2):
            stages = self.pipe.stages
            if stages[one.stage].device != stages[other.stage].device or one[::2] == other[::2]:
                continue
            times = self.times_together(one, other)
            if not times:
                continue
            pair = self.cp.new_bool_var(f"{op_text(one)}+{op_text(other)}")
            time = self.var("")
            self.cp.add_bool_or([~pair, *times])
            for both, length in times.items():
                self.cp.add(time == length).only_enforce_if(pair, both)
            a, b = self.run[one], self.run[other]
            self.cp.add(a.start == b.start).only_enforce_if(pair)
            for op, run in ((one, a), (other, b)):
                if run.runs is not None:
                    self.cp.add_implication(pair, run.runs)
                self.cp.add(run.end == run.start + time).only_enforce_if(pair)
                partners[op].append(pair)
            self.pairs[self._as_written(one, other)] = pair
        for op, run in self.run.items():
            alone = [~pair for pair in partners[op]]
            if alone:
                self.cp.add_at_most_one(partners[op])
            self.cp.add(run.end == run.start + run.length).only_enforce_if(alone)

    def times_together(self, one: Op, other: Op) -> dict[Any, int]:
        """Time of a pair by literals of the modes of its members that allow it."""
        found: dict[Any, int] = {}
        ours, theirs = (self.pipe.modes(op.stage, op.microbatch) for op in (one, other))
        for name, next_name in product(ours, theirs):
            time = self.pipe.pair_time(one[:2], other[:2], ours[name], theirs[next_name])
            if time is not None:
                both = self.cp.new_bool_var("")
                for op, mode in ((one, name), (other, next_name)):
                    self.cp.add_implication(both, self.use[op.stage, op.microbatch][mode])
                found[both] = time
        return found

    def _as_written(self, one: Op, other: Op) -> tuple[Op, Op]:
        """Members in the order of files."""
        if one[:2] == other[:2]:
            turned = other.microbatch < one.microbatch
        elif (other[:2], one[:2]) in self.pipe.pairs:
            turned = True
        else:
            turned = (one[:2], other[:2]) not in self.pipe.pairs and other.kind == "F"
        return (other, one) if turned else (one, other)

    def backward_end(self, s: int, m: int, after: Any) -> None:
        """``after`` is no earlier than the end of the backward that runs."""
        fused = self.fused[s, m]
        self.cp.add(after >= self.run[Op(s, "BW", m)].end).only_enforce_if(fused)
        self.cp.add(after >= self.run[Op(s, "B", m)].end).only_enforce_if(~fused)

    def add_waits(self) -> None:
        for route, microbatches in self.pipe.routes:
            for m in range(microbatches):
                for here, there in pairwise(route):
                    forth, back = self.pipe.delay_of(here, there, m)
                    enters = self.run[Op(here, "F", m)]
                    self.cp.add(self.run[Op(there, "F", m)].start >= enters.end + forth)
                    for kind in ("B", "BW"):
                        self.backward_end(there, m, self.run[Op(here, kind, m)].start - back)
                last = route[-1]
                for kind in ("B", "BW"):
                    forward = self.run[Op(last, "F", m)]
                    self.cp.add(self.run[Op(last, kind, m)].start >= forward.end)
                for s in route:
                    self.cp.add(self.run[Op(s, "W", m)].start >= self.run[Op(s, "B", m)].end)
            alike: dict[int, list[_Run]] = {}
            for m in range(microbatches):
                kind = self.pipe.class_of(route[0], m)
                alike.setdefault(kind, []).append(self.run[Op(route[0], "F", m)])
            for first in alike.values():  # those of one class are numbered as they enter
                for one, other in pairwise(first):
                    self.cp.add(one.start <= other.start)

    def add_turns(self, device: int) -> None:
        """Two ops that both run take turns, or are a pair."""
        here = [op for op in self.run if self.pipe.stages[op.stage].device == device]
        for one, other in combinations(here, 2):
            if one[::2] == other[::2]:
                continue  # F, B and W wait for each other anyhow, and BW excludes B and W
            paired = [self.pairs[k] for k in ((one, other), (other, one)) if k in self.pairs]
            self.in_turn(self.run[one], self.run[other], paired)

    def add_memory(self, device: int) -> None:
        capacity = self.pipe.memory[device]
        if capacity is None:
            return
        held: list[Any] = []
        amounts: list[int] = []

        def hold(amount: int, start: Any, end: Any, when: Any) -> None:
            if amount:
                length = self.var("")
                held.append(self.cp.new_optional_interval_var(start, length, end, when, ""))
                amounts.append(amount)

        for (s, m), choice in self.fused.items():
            if self.pipe.stages[s].device != device:
                continue
            f, b, w, bw = (self.run[Op(s, kind, m)] for kind in ("F", "B", "W", "BW"))
            for name, data in self.pipe.modes(s, m).items():
                fused, split = (self.both(self.use[s, m][name], way) for way in (choice, ~choice))
                for way, back in ((fused, bw), (split, b)):
                    since = f.start
                    if data.copies is not None:
                        out, load = self.copies[s, m, "O"], self.copies[s, m, "L"]
                        hold(data.held_F, f.start, out.end, way)
                        hold(data.copies[2], out.end, load.start, way)
                        since = load.start
                    hold(data.held_F, since, back.start, way)
                most = max(data.held_F, data.held_x)
                hold(most, bw.start, bw.end, fused)
                hold(max(most, data.held_B), b.start, b.end, split)
                hold(data.held_B, b.end, w.end, split)
        room = capacity - self.pipe.static[device]
        if room < 0:
            self.cp.add_bool_or([])
        elif held:
            self.cp.add_cumulative(held, amounts, room)

    def both(self, one: Any, other: Any) -> Any:
        """Return a literal for both of two literals."""
        found = self.cp.new_bool_var("")
        self.cp.add_bool_and(one, other).only_enforce_if(found)
        self.cp.add_bool_or([~one, ~other, found])
        return found

    def aim(self, objective: str) -> Any:
        goal = self.var("value")
        for device in range(self.pipe.devices):
            begin: Any = 0 if objective == "makespan" else self.var("")
            for op, run in self.run.items():
                if self.pipe.stages[op.stage].device == device:
                    when = [] if run.runs is None else [run.runs]
                    self.cp.add(run.start >= begin).only_enforce_if(when)
                    self.cp.add(goal >= run.end - begin).only_enforce_if(when)
        self.cp.minimize(goal)
        return goal


def horizon(pipe: Pipe) -> int:
    """Return a time that some optimal schedule does not exceed."""
    total = sum(max(a + b for a, b in rows) for rows in pipe.delay.values())
    total *= max(m for _, m in pipe.routes)
    for route, microbatches in pipe.routes:
        for s in route:
            most = {kind: pipe.most(s, kind) for kind in KINDS}
            copies = [
                a.copies[0] + a.copies[1] for row in pipe.ways[s] for a in row.values() if a.copies
            ]
            once = most["F"] + max(most["BW"], most["B"] + most["W"]) + max(copies, default=0)
            total += microbatches * once
    return total + 1


def exact(pipe: Pipe, objective: str, seconds: float = 10.0) -> Truth:
    """Bracket the optimum of a problem; exactly, if it is small enough for ``seconds``.

    Times beyond what CP-SAT is trusted with are divided: without remainder where that is possible,
    else rounded down. The rounded optimum times the divisor is a lower bound (rounded starts keep
    every rule), and the order found is timed in the exact problem.
    """
    divisor = 1 if pipe.has_pairs or not pipe.plain else common_divisor(pipe)
    divisor *= max(1, horizon(pipe) // divisor // LARGEST)
    model = _Model(divided(pipe, divisor))
    model.aim(objective)
    floor = lower_bound(pipe, objective)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model.cp)
    if status == cp_model.INFEASIBLE:
        return Truth(floor, None, False)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Truth(floor)
    document: dict[str, Any] | None = _schedule(model, solver)
    if divisor > 1:
        document = retimed(pipe, document, objective)
    broken = ["waits in a circle"] if document is None else broken_rules(pipe, "", document)
    assert not broken or divisor > 1, f"the oracle's own schedule: {broken}"
    lower = max(floor, round(solver.best_objective_bound) * divisor)
    if broken:
        return Truth(lower)
    timed, _ = read_timed(document, pipe.devices)
    return Truth(lower, values.value(timed, objective), True, document)


def _schedule(model: _Model, solver: Any) -> dict[str, Any]:
    """Return the model's answer as a schedule document; at one instant, inputs come first."""
    rows: list[list[list[Any]]] = [[] for _ in range(model.pipe.devices)]
    paired = {op: pair for pair, v in model.pairs.items() if solver.value(v) for op in pair}
    depth = _depths(model)
    entries = []
    for op, run in model.run.items():
        if run.runs is not None and not solver.boolean_value(run.runs):
            continue
        if op in paired and op == paired[op][1]:
            continue
        text = op_text(op)
        if op in paired:
            text = f"({text}+{op_text(paired[op][1])})"
        start, end = solver.value(run.start), solver.value(run.end)
        place = (depth[op], _turn(model, solver, op))
        entries.append((start, end, place, model.pipe.stages[op.stage].device, text))
    for start, end, _, device, text in sorted(entries):
        rows[device].append([text, start, end])
    found = {"format": "pipesat.schedule/1", "problem_sha256": "", "devices": rows}
    modes = [
        [s, m, name]
        for (s, m), use in model.use.items()
        for name, chosen in use.items()
        if name != KEEP and solver.boolean_value(chosen)
    ]
    copies: list[list[list[Any]]] = [[] for _ in range(model.pipe.devices)]
    for (s, m, kind), run in model.copies.items():
        if solver.boolean_value(run.runs):
            times = [solver.value(run.start), solver.value(run.end)]
            copies[model.pipe.stages[s].device].append([f"{s}{kind}{m}", *times])
    for row in copies:  # at one instant, those out come first
        row.sort(key=lambda copy: (copy[1], copy[2], "L" in copy[0]))
    return found | {"modes": modes, "copies": copies} if modes else found


def _turn(model: _Model, solver: Any, op: Op) -> int:
    """How many microbatches come before an op's in the order of its route."""
    route = model.pipe.route_of[op.stage]
    found = 0
    for (number, one, other), first in model.before.items():
        if number == route and op.microbatch in (one, other):
            found += solver.boolean_value(first) == (op.microbatch == other)
    return found


def _depths(model: _Model) -> dict[Op, int]:
    """How far along its microbatch's way an op is."""
    found = {}
    for route, microbatches in model.pipe.routes:
        last = len(route) - 1
        for m in range(microbatches):
            for place, s in enumerate(route):
                found[Op(s, "F", m)] = place
                for kind in ("B", "BW"):
                    found[Op(s, kind, m)] = 2 * last + 1 - place
                found[Op(s, "W", m)] = 2 * last + 2
    return found
