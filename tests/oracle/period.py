"""The least period of a small pipeline of one route, exactly: the best cycle through its states.

Time goes in whole units. A state says of every microbatch under way what it waits for or runs, for
how long still, and in which modes it is held. In each unit every idle device starts an op, a pair
or nothing; what counts is how many microbatches enter. No code of pipesat's is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, product
from typing import Any, NamedTuple

from tests.oracle.reading import Op, Pipe

_UNDER_WAY = 5  # microbatches; with more, none of the problems asked about is faster


class TooLarge(Exception):
    """There are more states than one wants to look at."""


class _Passing(NamedTuple):
    """A microbatch: its next or present op, by place on the way out and home.

    ``wait`` is the time until it can run, ``left`` that until it ends (0: it has not begun), with
    its ``kind``. ``modes`` are those of the stages whose backward is to come; ``weights`` are the
    pending W's: (stage, mode, time left or 0).
    """

    place: int = 0
    wait: int = 0
    kind: str = ""
    left: int = 0
    modes: tuple[str, ...] = ()
    weights: tuple[tuple[int, str, int], ...] = ()


_State = tuple[_Passing, ...]


class _Start(NamedTuple):
    """A microbatch (by number; beyond the last: a new one) starts an op in a mode."""

    number: int
    stage: int
    kind: str
    mode: str


class _Machine:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.pipe = Pipe(dict(document) | {"microbatches": 1})
        self.stages = self.pipe.routes[0].stages
        self.modes = {s: self.pipe.modes[s, 0] for s in self.stages}

    def stage(self, place: int) -> int:
        return self.stages[min(place, 2 * len(self.stages) - 1 - place)]

    def held(self, state: _State, device: int) -> int:
        """Memory that a device holds from now on."""
        total = 0
        for one in state:
            for s, mode in zip(self.stages, one.modes, strict=False):
                x = self.modes[s][mode]
                running = one.left and one.kind != "F" and self.stage(one.place) == s
                most = max(x.a, x.x, x.w if one.kind == "B" else 0) if running else x.a
                total += most * (self.pipe.home[s] == device)
            for s, mode, _ in one.weights:
                total += self.modes[s][mode].w * (self.pipe.home[s] == device)
        return total

    def busy(self, state: _State) -> set[int]:
        ops = [self.stage(one.place) for one in state if one.left]
        ops += [s for one in state for s, _, left in one.weights if left]
        return {self.pipe.home[s] for s in ops}

    def ready(self, state: _State) -> Iterator[_Start]:
        """Ops that could start, but for devices and memory."""
        many = len(self.stages)
        new = [_Passing()] if len(state) < _UNDER_WAY else []
        for number, one in enumerate([*state, *new]):
            for s, mode, left in one.weights:
                if not left:
                    yield _Start(number, s, "W", mode)
            if one.left or one.wait or one.place == 2 * many:
                continue
            s = self.stage(one.place)
            if one.place < many:
                yield from (_Start(number, s, "F", mode) for mode in self.modes[s])
            else:
                mode = one.modes[-1]
                for way in self.modes[s][mode].ways:
                    yield _Start(number, s, way[0], mode)

    def choices(self, state: _State) -> Iterator[list[tuple[_Start, int]]]:
        """What all devices may start at once, each with its time."""
        busy, options = self.busy(state), defaultdict(list)
        ready = [start for start in self.ready(state) if self.pipe.home[start.stage] not in busy]
        for start in ready:
            time = self.modes[start.stage][start.mode].time[start.kind]
            options[self.pipe.home[start.stage]].append([(start, time)])
        new = [start for start in ready if start.number == len(state)]
        two = [
            start._replace(number=len(state) + 1) for start in new if len(state) + 1 < _UNDER_WAY
        ]
        for a, b in combinations([*ready, *two], 2):
            if a.number == b.number or (b in two and a not in new):
                continue
            ops = (Op(x.stage, x.kind, x.number) for x in (a, b))
            time = self.pipe.together(*ops, *(self.modes[x.stage][x.mode] for x in (a, b)))
            if time:
                options[self.pipe.home[a.stage]].append([(a, time), (b, time)])
        for chosen in product(*([[], *found] for found in options.values())):
            yield [start for starts in chosen for start in starts]

    def after(self, state: _State, starts: list[tuple[_Start, int]]) -> tuple[_State, int] | None:
        """The state a unit of time later, and how many have entered; nothing if memory is short."""
        own = [*state]
        for start, time in sorted(starts):
            if start.number >= len(own):
                own.append(_Passing())
            one = own[start.number]
            if start.kind == "W":
                weights = list(one.weights)
                weights[weights.index((start.stage, start.mode, 0))] = (*start[1:4:2], time)
                own[start.number] = one._replace(weights=tuple(weights))
                continue
            modes = (*one.modes, start.mode) if start.kind == "F" else one.modes
            own[start.number] = one._replace(kind=start.kind, left=time, modes=modes)
        for device in {self.pipe.home[start.stage] for start, _ in starts}:
            slack = self.pipe.memory[device]
            if (
                slack is not None
                and self.held(tuple(own), device) + self.pipe.static[device] > slack
            ):
                return None
        later = [self._later(one) for one in own]
        there = [one for one in later if one.weights or one.place < 2 * len(self.stages)]
        return tuple(sorted(there)), len(own) - len(state)

    def _later(self, one: _Passing) -> _Passing:
        weights = [(s, mode, left - 1 if left else 0) for s, mode, left in one.weights if left != 1]
        if one.wait:
            return one._replace(wait=one.wait - 1, weights=tuple(weights))
        if one.left != 1:
            return one._replace(left=max(0, one.left - 1), weights=tuple(weights))
        s, place, modes = self.stage(one.place), one.place + 1, one.modes
        if one.kind != "F":
            modes = modes[:-1]
            weights += [(s, one.modes[-1], 0)] if one.kind == "B" else []
        wait = 0
        if 0 < place < 2 * len(self.stages) and place != len(self.stages):
            there = self.stage(place)
            phase = "F" if place < len(self.stages) else "B"
            ends = (s, there) if phase == "F" else (there, s)
            wait = self.pipe.delay(*ends, 0, phase)
        return _Passing(place, wait, "", 0, modes, tuple(sorted(weights)))


def least_period(document: Mapping[str, Any], most: int = 4000) -> Fraction | None:
    """Return the least time per microbatch in the long run; ``None`` if nothing passes.

    Raises
    ------
    TooLarge
        With more than ``most`` states.
    """
    machine = _Machine(document)
    number: dict[_State, int] = {(): 0}
    edges: list[tuple[int, int, int]] = []
    for at, state in enumerate(todo := [()]):
        found: set[tuple[_State, int]] = set()
        for starts in machine.choices(state):
            then = machine.after(state, starts)
            if then is not None:
                found.add(then)
        for other, entered in found:
            if other not in number:
                number[other] = len(todo)
                todo.append(other)
            edges.append((at, number[other], entered))
        if len(todo) > most:
            raise TooLarge
    rate = _best_mean(len(todo), edges)
    return 1 / rate if rate else None


def _best_mean(count: int, edges: list[tuple[int, int, int]]) -> Fraction:
    """The largest mean reward of a cycle that is reached from node 0.

    As long as some cycle has more than the rate known, it is the next one: longest paths, with the
    rate taken off each edge, grow without end, and the edges that they came by have the cycle.
    """
    import numpy as np

    source, target, reward = (np.array(column) for column in zip(*edges, strict=True))
    by_target = np.argsort(target, kind="stable")
    source, target, reward = source[by_target], target[by_target], reward[by_target]
    begins = np.flatnonzero(np.r_[True, target[1:] != target[:-1]])
    nodes = target[begins]
    rate = Fraction(0)
    while True:
        gain = reward * rate.denominator - rate.numerator
        length, came = np.full(count, -(10**12)), np.full(count, -1)
        length[0] = 0
        for step in range(1, 10**9):
            reached = length[source] + gain
            best = np.maximum.reduceat(reached, begins)
            better = best > length[nodes]
            if not better.any():
                return rate
            first = np.flatnonzero(reached == np.repeat(best, np.diff(np.r_[begins, len(target)])))
            at = first[np.searchsorted(first, begins)]
            length[nodes[better]], came[nodes[better]] = best[better], at[better]
            if step % 16 == 0 and (cycle := _cycle(came, source)):
                rate = Fraction(int(reward[cycle].sum()), len(cycle))
                break


def _cycle(came: Any, source: Any) -> list[int]:
    """A cycle among the edges by which nodes were reached last; empty if there is none."""
    seen: dict[int, int] = {}
    for start in range(len(came)):
        path, node = [], start
        while node not in seen and came[node] >= 0:
            seen[node] = start
            path.append(int(came[node]))
            node = int(source[came[node]])
        if seen.get(node) == start and path:
            ends = [int(source[edge]) for edge in path]
            return path if node == start else path[ends.index(node) + 1 :]
    return []
