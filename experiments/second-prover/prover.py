"""The optimum of small problems by an integer program in HiGHS: one JSON line in, one out.

    python prover.py --seconds S < QUESTIONS > ANSWERS

It has no code of pipesat's and no model of the oracle's, only the oracle's reader of documents.
Every run of an op, copy or pair is a row of 0 and 1 over integer times: whether it has started by
then. What waits, overlaps and is held is linear in these rows, instant by instant.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import highspy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.oracle.reading import KINDS, Op, Pipe, Route

Row = dict[int, int]
"""Coefficients by variable."""


class Run(NamedTuple):
    """One way to run something: ``first`` is its variable of time 0, ``length`` its duration."""

    first: int
    length: int


def sums(*rows: Row) -> Row:
    """The sum of some rows, without what cancels out."""
    found: Row = defaultdict(int)
    for row in rows:
        for variable, x in row.items():
            found[variable] += x
    return {variable: x for variable, x in found.items() if x}


class Program:
    """Variables of 0 and 1, and rows ``low <= sum <= high``."""

    def __init__(self) -> None:
        self.variables = 0
        self.rows: list[tuple[Row, float, float]] = []

    def new(self, count: int = 1) -> int:
        """The first of so many new variables."""
        self.variables += count
        return self.variables - count

    def at_most(self, row: Row, high: float) -> None:
        self.rows.append((row, -np.inf, high))

    def equal(self, row: Row, value: float) -> None:
        self.rows.append((row, value, value))

    def least(self, cost: Mapping[int, float], seconds: float) -> tuple[str, float, float]:
        """Status, value and bound of the least cost."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.variables, len(self.rows)
        lp.col_cost_ = np.array([cost.get(v, 0.0) for v in range(self.variables)])
        lp.col_lower_, lp.col_upper_ = np.zeros(self.variables), np.ones(self.variables)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * self.variables
        lp.row_lower_ = np.array([low for _, low, _ in self.rows])
        lp.row_upper_ = np.array([high for _, _, high in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _, _ in self.rows)])
        lp.a_matrix_.index_ = np.array([v for row, _, _ in self.rows for v in row], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([float(x) for row, _, _ in self.rows for x in row.values()])
        highs = highspy.Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("time_limit", seconds)):
            highs.setOptionValue(option, value)
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", 0.5)
        highs.passModel(lp)
        highs.run()
        info = highs.getInfo()
        status = highs.modelStatusToString(highs.getModelStatus())
        return status, info.objective_function_value, info.mip_dual_bound


class Model:
    """All rules of the contract at integer times from 0 to ``horizon``."""

    def __init__(self, document: Mapping[str, Any], pipe: Pipe, horizon: int) -> None:
        self.pipe, self.program = pipe, Program()
        said = document.get("routes") or [document]
        self.edges = [
            [*map(tuple, route.get("edges", pairwise(read.stages)))]
            for route, read in zip(said, pipe.routes, strict=True)
        ]
        self.slices = [route.get("slices", 1) for route in said]
        backwards = [stage.get("backward") for stage in document["stages"]]
        self.without = {s for s, backward in enumerate(backwards) if backward == "none"}
        self.times = range(horizon + 1)
        self.use = {key: {name: self.program.new() for name in modes} for key, modes in
                    pipe.modes.items()}  # fmt: skip
        self.split = {key: self.program.new() for key in pipe.modes}
        self.runs: dict[tuple[Op, str], list[Run]] = defaultdict(list)
        self.lanes: dict[tuple[int, str], list[Run]] = defaultdict(list)
        self.pairs: dict[frozenset[Op], list[Run]] = defaultdict(list)
        for key in pipe.modes:
            self._choose(*key)
        self._pair()
        for key, modes in pipe.modes.items():
            for name in modes:
                self._count(*key, name)
        for route, edges, slices in zip(pipe.routes, self.edges, self.slices, strict=True):
            for s, m in product(route.stages, range(len(route.classes))):
                self._wait(s, m, edges, slices)
            self._one_order(route, slices)
        for lane in self.lanes.values():
            self._one_at_a_time(lane)
        for device in pipe.devices:
            self._hold(device)

    def run(self, length: int) -> Run:
        """A new run that may start at any time at which it still ends in time, or never."""
        run = Run(self.program.new(len(self.times)), length)
        for t in self.times[1:]:
            self.program.at_most({run.first + t - 1: 1, run.first + t: -1}, 0)
        last = len(self.times) - 1 - length
        if last < 0:
            self.program.equal({run.first + len(self.times) - 1: 1}, 0)
        elif length:  # nothing starts after the last time
            self.program.equal({run.first + len(self.times) - 1: 1, run.first + last: -1}, 0)
        return run

    def started(self, runs: list[Run], t: int, sign: int = 1) -> Row:
        """How many of these runs have started by a time."""
        return {} if t < 0 else {run.first + min(t, self.times[-1]): sign for run in runs}

    def ended(self, runs: list[Run], t: int, sign: int = 1) -> Row:
        """How many of these runs have ended by a time."""
        row: Row = {}
        for run in runs:
            row |= self.started([run], t - run.length, sign)
        return row

    def of(self, stage: int, kinds: str, m: int, mode: str = "") -> list[Run]:
        """Runs of an op of these kinds (parted by spaces), in a mode or in any."""
        return [
            run
            for kind in kinds.split()
            for name in ([mode] if mode else self.pipe.modes[stage, m])
            for run in self.runs[Op(stage, kind, m), name]
        ]

    def after(self, later: list[Run], earlier: list[Run], delay: int = 0) -> None:
        """``later`` have started by a time only if ``earlier`` had ended ``delay`` before."""
        for t in self.times:
            self.program.at_most(
                sums(self.started(later, t), self.ended(earlier, t - delay, -1)), 0
            )

    def _choose(self, s: int, m: int) -> None:
        """One mode, split or fused as the mode allows, and runs of every op alone."""
        pipe, program = self.pipe, self.program
        program.equal(dict.fromkeys(self.use[s, m].values(), 1), 1)
        for name, amounts in pipe.modes[s, m].items():
            use, split = self.use[s, m][name], self.split[s, m]
            if s in self.without:
                self._add(Op(s, "F", m), name, amounts.time["F"])
                continue
            if amounts.backward == "split":
                program.at_most({use: 1, split: -1}, 0)
            elif amounts.backward == "fused":
                program.at_most({use: 1, split: 1}, 1)
            if pipe.choice == "stage" and m:
                program.equal({use: 1, self.use[s, 0][name]: -1}, 0)
            for kind in KINDS:
                self._add(Op(s, kind, m), name, amounts.time[kind])
            for kind, length in zip("OL", amounts.copies or (), strict=False):
                self._add(Op(s, kind, m), name, length)

    def _add(self, op: Op, mode: str, length: int) -> None:
        run = self.run(length)
        device = self.pipe.home[op.stage]
        channel = op.kind if self.pipe.channels[device] > 1 else "O"
        self.runs[op, mode].append(run)
        self.lanes[device, "" if op.kind in KINDS else channel].append(run)

    def _pair(self) -> None:
        ops = sorted({op for op, _ in self.runs if op.kind in KINDS})
        for one, other in combinations(ops, 2):
            ours, theirs = self.pipe.modes[one[::2]], self.pipe.modes[other[::2]]
            for a, b in product(ours, theirs):
                length = self.pipe.together(one, other, ours[a], theirs[b])
                if length:
                    run = self.run(length)
                    self.runs[one, a].append(run)
                    self.runs[other, b].append(run)
                    self.lanes[self.pipe.home[one.stage], ""].append(run)
                    self.pairs[frozenset((one, other))].append(run)

    def _count(self, s: int, m: int, mode: str) -> None:
        """Each op runs once in the mode that is used: F, and B with W, or BW."""
        use, split, end = self.use[s, m][mode], self.split[s, m], self.times[-1]

        def whole(kinds: str) -> Row:
            return self.started(self.of(s, kinds, m, mode), end)

        self.program.equal(whole("F") | {use: -1}, 0)
        if s in self.without:
            return
        self.program.equal(whole("B BW") | {use: -1}, 0)
        self.program.at_most(whole("B") | {split: -1}, 0)
        self.program.at_most(whole("BW") | {split: 1}, 1)
        without = self.started(self.of(s, "W", m, mode), end, -1)
        self.program.equal(sums(whole("B"), without), 0)
        for kind in "OL" if self.pipe.modes[s, m][mode].copies else "":
            self.program.equal(whole(kind) | {use: -1}, 0)

    def _wait(self, s: int, m: int, edges: Sequence[tuple[int, ...]], slices: int) -> None:
        """Forth along the edges and back, W after its B, slices in turn, copies in between."""
        forward, backward = self.of(s, "F", m), self.of(s, "B BW", m)
        self.after(self.of(s, "W", m), self.of(s, "B", m))
        later = [there for here, there in edges if here == s]
        for there in later:
            out, back = (self.pipe.delay(s, there, m, phase) for phase in "FB")
            self.after(self.of(there, "F", m), forward, out)
            self.after(backward, self.of(there, "B BW", m), back)
        if not later:
            self.after(backward, forward)
        if (m + 1) % slices:
            self.after(self.of(s, "F", m + 1), forward)
            self.after(backward, self.of(s, "B BW", m + 1))
        for name, amounts in self.pipe.modes[s, m].items():
            if amounts.copies:
                out_, in_ = self.of(s, "O", m, name), self.of(s, "L", m, name)
                self.after(out_, self.of(s, "F", m, name))
                self.after(in_, out_)
                self.after(self.of(s, "B BW", m, name), in_)

    def _one_order(self, route: Route, slices: int) -> None:
        """Alike sequences by number; lists with a rule, stage by stage."""
        first, alike = route.stages[0], defaultdict(list)
        for m in range(0, len(route.classes), slices):
            alike[tuple(map(id, route.classes[m : m + slices]))].append(m)
        for group in alike.values():
            for i, j in pairwise(group):
                for t in self.times:
                    later = self.started(self.of(first, "F", j), t)
                    earlier = self.started(self.of(first, "F", i), t, -1)
                    self.program.at_most(sums(later, earlier), 0)
        if not route.listed or self.pipe.order == "free":
            return
        for i, j in combinations(range(0, len(route.classes), slices), 2):
            turned = self.program.new()
            if self.pipe.order == "given":
                self.program.equal({turned: 1}, 0)
            for a, b in product(range(i, i + slices), range(j, j + slices)):
                for s, kinds in product(route.stages, ("F", "B BW")):
                    self._in_turn(s, kinds, (a, b), turned)

    def _in_turn(self, s: int, kinds: str, two: tuple[int, int], turned: int) -> None:
        """The earlier ends before the later starts, unless both are one pair."""
        names = kinds.split()
        paired = [
            run
            for a, b in product(names, names)
            for run in self.pairs[frozenset((Op(s, a, two[0]), Op(s, b, two[1])))]
        ]
        for (a, b), off in ((two, {turned: -1}), (two[::-1], {turned: 1})):
            for t in self.times:
                later, earlier = self.of(s, kinds, b), self.of(s, kinds, a)
                row = sums(
                    *(off, self.started(later, t), self.ended(earlier, t, -1)),
                    *(self.started(paired, t, -1), self.ended(paired, t)),
                )
                self.program.at_most(row, int(off[turned] == 1))

    def _one_at_a_time(self, lane: list[Run]) -> None:
        """No two at one time; what takes no time lies in no other's inside."""
        long = [run for run in lane if run.length]
        for t in self.times:
            done = self.ended(long, t, -1)
            self.program.at_most(sums(self.started(long, t), done), 1)
            for run in lane:
                if not run.length:
                    now = sums(self.started([run], t), self.started([run], t - 1, -1))
                    inside = sums(self.started(long, t - 1), done)
                    self.program.at_most(sums(now, inside), 1)

    def _hold(self, device: int) -> None:
        capacity = self.pipe.memory[device]
        if capacity is None:
            return
        for t in self.times:
            held = [
                {variable: sign * amount * x for variable, x in count(t).items()}
                for (s, m), modes in self.pipe.modes.items()
                for name in modes
                for amount, since, until in self._held(s, m, name)
                for sign, count in ((1, since), (-1, until))
                if self.pipe.home[s] == device
            ]
            self.program.at_most(sums(*held), capacity - self.pipe.static[device])

    def _held(self, s: int, m: int, mode: str) -> Iterator[tuple[int, Any, Any]]:
        """Amounts, with what counts those that have come and gone by a time."""
        x = self.pipe.modes[s, m][mode]

        def begun(kinds: str) -> Any:
            return lambda t: self.started(self.of(s, kinds, m, mode), t)

        def done(kinds: str) -> Any:
            return lambda t: self.ended(self.of(s, kinds, m, mode), t)

        if s in self.without:
            yield x.a, begun("F"), done("F")
            return
        if x.copies:
            yield x.a, begun("F"), done("O")
            yield x.copies[2], done("O"), begun("L")
            yield x.a, begun("L"), begun("B BW")
        else:
            yield x.a, begun("F"), begun("B BW")
        yield max(x.a, x.x), begun("BW"), done("BW")
        yield max(x.a, x.x, x.w), begun("B"), done("B")
        yield x.w, done("B"), done("W")

    def makespan(self, seconds: float) -> tuple[str, float, float]:
        """Count the times at which not all has ended."""
        over = self._over(self.pipe.devices)
        return self.program.least({over + t: 1.0 for t in self.times}, seconds)

    def span(self, seconds: float) -> tuple[str, float, float]:
        """Count, for the device where they are most, the times between its first op and last."""
        most = self.program.new(len(self.times))
        counted = {most + t: -1 for t in self.times}
        for device in self.pipe.devices:
            over, begun = self._over([device]), self.program.new(len(self.times))
            for run, t in product(self.lanes[device, ""], self.times):
                self.program.at_most(sums(self.started([run], t), {begun + t: -1}), 0)
            active = {first + t: 1 for first in (over, begun) for t in self.times}
            self.program.at_most(active | counted, len(self.times))
        return self.program.least({most + t: 1.0 for t in self.times}, seconds)

    def _over(self, devices: Sequence[int]) -> int:
        """The first of variables that say of every time that not all of devices' ops have ended."""
        over = self.program.new(len(self.times))
        for run, t in product([r for d in devices for r in self.lanes[d, ""]], self.times):
            whole = {run.first + self.times[-1]: 1, over + t: -1}
            self.program.at_most(sums(whole, self.ended([run], t, -1)), 0)
        for t in self.times[1:]:
            self.program.at_most({over + t: 1, over + t - 1: -1}, 0)
        return over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of HiGHS, per problem")
    seconds = parser.parse_args().seconds
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.process_time()
        pipe = Pipe(asked["document"])
        horizon = pipe.horizon if asked["makespan"] is None else asked["makespan"]
        model = Model(asked["document"], pipe, horizon)
        ask = model.makespan if asked["objective"] == "makespan" else model.span
        status, value, bound = ask(seconds)
        answer: dict[str, Any] = {"name": asked["name"], "status": status}
        if status == "Optimal":
            answer["value"] = round(value)
        elif np.isfinite(bound):
            answer["bound"] = float(bound)
        answer["seconds"] = round(time.process_time() - begun, 2)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
