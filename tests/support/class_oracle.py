"""The optimum of a tiny problem document whose microbatches differ, by trying everything.

It reads the document itself and shares no code with pipesat: amounts, timing, memory and the rule
about the order are stated again from the contract (sections 2, 3 and 8). Times are positive, so
that on a device memory depends on the order of its ops alone. With a factor for pairs of F and BW,
for the makespan only.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, permutations, product
from math import ceil
from typing import Any, Literal, NamedTuple

Kind = Literal["F", "B", "W", "BW"]
Name = tuple[int, Kind, int]
TIMES = ("F", "B", "W", "BW")
HELD = ("held_after_F", "held_after_B", "held_in_backward")


class _Task(NamedTuple):
    device: int
    length: int
    taken: int  # at its start, on top of what is held
    kept: int  # after its end, compared with before its start


class Oracle:
    """All schedules of a document with ``microbatches``, a number or a list, and one route."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        given = document["microbatches"]
        entries = given if isinstance(given, list) else [{"name": "", "count": given}]
        first = {entry["name"]: entry for entry in reversed(entries)}
        self.classes = [first[e["name"]] for e in entries for _ in range(e["count"])]
        self.count, self.stages = len(self.classes), len(document["stages"])
        self.factor = document.get("overlap", {}).get("FB")
        self.rule = document.get("order", "free") if isinstance(given, list) else "free"
        self.home = [stage["device"] for stage in document["stages"]]
        self.room = [
            None if d.get("memory") is None else d["memory"] - d.get("static", 0)
            for d in document["devices"]
        ]
        self.task = {
            (s, kind, m): self._task(s, kind, m)
            for s, kind, m in product(range(self.stages), TIMES, range(self.count))
        }

    def amounts(self, stage: int, microbatch: int) -> dict[str, int]:
        """Resulting amounts of one (stage, microbatch)."""
        own, kind = self.document["stages"][stage], self.classes[microbatch]
        outright = kind.get("stages", {}).get(str(stage), {})
        result = {}
        for key in (*TIMES, *HELD):
            factor = Fraction(*kind.get("held" if key in HELD else "time", [1, 1]))
            if key in outright:
                result[key] = outright[key]
            elif key in own or key != "BW":
                result[key] = ceil(own.get(key, 0) * factor)
        result.setdefault("BW", result["B"] + result["W"])
        return result

    def delay(self, stage: int, other: int, microbatch: int) -> int:
        """Delay between neighbouring stages; only ``comm.default`` is read."""
        if self.home[stage] == self.home[other]:
            return 0
        factor = Fraction(*self.classes[microbatch].get("comm", [1, 1]))
        return ceil(self.document.get("comm", {}).get("default", 0) * factor)

    def _task(self, stage: int, kind: Kind, microbatch: int) -> _Task:
        x = self.amounts(stage, microbatch)
        assert x[kind] > 0
        a, w, b = x["held_after_F"], x["held_after_B"], x["held_in_backward"]
        taken, kept = {
            "F": (a, a),
            "B": (max(a, w, b) - a, w - a),
            "W": (0, -w),
            "BW": (max(a, b) - a, -a),
        }[kind]
        return _Task(self.home[stage], x[kind], taken, kept)

    def together(self, forward: Name, backward: Name) -> int:
        """Time of a pair of F and BW by the document's factor."""
        lengths = self.task[forward].length, self.task[backward].length
        return max(*lengths, ceil(sum(lengths) * Fraction(*self.factor)))

    def needs(self, name: Name) -> tuple[list[Name], int]:
        """What an op waits for, one of these, and how long after its end."""
        stage, kind, microbatch = name
        if kind == "W":
            return [(stage, "B", microbatch)], 0
        if kind == "F":
            if stage == 0:
                return [], 0
            return [(stage - 1, "F", microbatch)], self.delay(stage - 1, stage, microbatch)
        if stage == self.stages - 1:
            return [(stage, "F", microbatch)], 0
        after: list[Name] = [(stage + 1, "B", microbatch), (stage + 1, "BW", microbatch)]
        return after, self.delay(stage, stage + 1, microbatch)

    def turns(self) -> Iterator[tuple[int, ...] | None]:
        """The orders of microbatches that the rule allows; ``None`` for any."""
        if self.rule == "free":
            yield None
        elif self.rule == "given":
            yield tuple(range(self.count))
        else:
            yield from permutations(range(self.count))

    def orders(self) -> Iterator[tuple[tuple[Name, ...], ...]]:
        """Yield every order of every device that keeps to memory and rule, once per permutation."""
        for turn in self.turns():
            yield from (rows for rows, _ in _Search(self, turn).leaves())

    def optimum(self, objective: str) -> int | None:
        """Least makespan or span; ``None`` if nothing fits."""
        if objective == "span":
            assert self.factor is None
            return min(map(self.least_span, self.orders()), default=None)
        best: int | None = None
        for turn in self.turns():
            for _, value in _Search(self, turn, pruning=True, best=best).leaves():
                best = value
        return best

    def least_span(self, rows: tuple[tuple[Name, ...], ...]) -> int:
        """Least span of an order: the first T for which starts exist, by relaxation."""
        names = [name for row in rows for name in row]
        present = set(names)
        waits: list[tuple[Name, Name, int]] = []
        for row in rows:
            waits += [(x, y, self.task[x].length) for x, y in pairwise(row)]
        for name in names:
            sources, delay = self.needs(name)
            waits += [
                (source, name, self.task[source].length + delay)
                for source in sources
                if source in present
            ]
        low = max(sum(self.task[name].length for name in row) for row in rows)
        high = sum(self.task[name].length for name in names) + sum(w for _, _, w in waits)
        while low < high:  # feasibility grows with T
            middle = (low + high) // 2
            if self._starts_exist(rows, names, waits, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _starts_exist(
        self,
        rows: tuple[tuple[Name, ...], ...],
        names: list[Name],
        waits: list[tuple[Name, Name, int]],
        span: int,
    ) -> bool:
        """Whether ``y >= x + w`` for all waits, and first start >= last end - span, can hold."""
        limits = [(row[-1], row[0], self.task[row[-1]].length - span) for row in rows if row]
        start = dict.fromkeys(names, 0)
        for _ in range(len(names) + 1):
            changed = False
            for x, y, w in (*waits, *limits):
                if start[x] + w > start[y]:
                    start[y], changed = start[x] + w, True
            if not changed:
                return True
        return False


class _Search:
    """Depth first over ops in order of their starts; ``best`` prunes, for the makespan."""

    def __init__(
        self,
        oracle: Oracle,
        turn: tuple[int, ...] | None,
        *,
        pruning: bool = False,
        best: int | None = None,
    ) -> None:
        self.oracle, self.turn, self.best, self.pruning = oracle, turn, best, pruning
        self.ends: dict[Name, int] = {}
        devices = len(oracle.room)
        self.free, self.held = [0] * devices, [0] * devices
        self.rows: list[list[Name]] = [[] for _ in range(devices)]

    def leaves(self) -> Iterator[tuple[tuple[tuple[Name, ...], ...], int]]:
        """Yield complete orders and their makespan; with pruning, only ever better ones."""
        yield from self._go((-1, -1))

    def _go(self, last: tuple[int, int]) -> Iterator[tuple[tuple[tuple[Name, ...], ...], int]]:
        choices = list(self._choices())
        if not choices:
            if self._complete():
                value = max(self.ends.values())
                if not self.pruning or self.best is None or value < self.best:
                    self.best = value
                    yield tuple(map(tuple, self.rows)), value
            return
        for names, start, length in choices:
            tasks = [self.oracle.task[name] for name in names]
            device = tasks[0].device
            if (start, device) < last or self._hopeless(start + length):
                continue
            before = self.free[device], self.held[device]
            self.free[device] = start + length
            self.ends |= dict.fromkeys(names, start + length)
            self.held[device] += sum(task.kept for task in tasks)
            self.rows[device] += names
            yield from self._go((start, device))
            for name in names:
                self.rows[device].pop()
                del self.ends[name]
            self.free[device], self.held[device] = before

    def _hopeless(self, end: int) -> bool:
        return self.pruning and self.best is not None and end >= self.best

    def _complete(self) -> bool:
        oracle = self.oracle
        return all(
            (s, "F", m) in self.ends and ((s, "BW", m) in self.ends or (s, "W", m) in self.ends)
            for s, m in product(range(oracle.stages), range(oracle.count))
        )

    def _choices(self) -> Iterator[tuple[tuple[Name, ...], int, int]]:
        """What may start next: the ops, alone or an F and a BW as a pair, start and length."""
        ready = dict(self._ready())
        for name, start in ready.items():
            yield (name,), start, self.oracle.task[name].length
        if self.oracle.factor is None:
            return
        for forward, backward in product(ready, ready):
            here, there = self.oracle.task[forward], self.oracle.task[backward]
            room = self.oracle.room[here.device]
            if (forward[1], backward[1]) != ("F", "BW") or here.device != there.device:
                continue
            if room is None or self.held[here.device] + here.taken + there.taken <= room:
                start = max(ready[forward], ready[backward])
                yield (forward, backward), start, self.oracle.together(forward, backward)

    def _ready(self) -> Iterator[tuple[Name, int]]:
        oracle = self.oracle
        for name, task in oracle.task.items():
            if name in self.ends or not self._allowed(name):
                continue
            sources, delay = oracle.needs(name)
            there = [self.ends[source] for source in sources if source in self.ends]
            room = oracle.room[task.device]
            if sources and not there:
                continue
            if room is not None and self.held[task.device] + task.taken > room:
                continue
            yield name, max([self.free[task.device], *(end + delay for end in there)])

    def _allowed(self, name: Name) -> bool:
        stage, kind, microbatch = name
        allowed = self.oracle.document["stages"][stage].get("backward", "either")
        split, fused = (stage, "B", microbatch), (stage, "BW", microbatch)
        if kind == "BW" and (allowed == "split" or split in self.ends):
            return False
        if kind in ("B", "W") and (allowed == "fused" or fused in self.ends):
            return False
        if kind != "F" and (stage, "F", microbatch) not in self.ends:
            return False
        if self.turn is None or kind == "W":
            return True
        done = sum(s == stage and (k == "F") == (kind == "F") and k != "W" for s, k, _ in self.ends)
        return self.turn[done] == microbatch
