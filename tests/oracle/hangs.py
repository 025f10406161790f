"""An exhaustive simulator of ranks that send and receive, and random orders for it.

It shares no code with pipesat: from a problem's document and an order's texts it makes each rank's
program anew, and visits every state that any interleaving of ranks and transfers can reach.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise
from random import Random
from typing import Any, NamedTuple

from tests.oracle.generator import drawn
from tests.oracle.reading import Pipe

SHAPES = ("chain", "loop", "V", "bidirectional", "anywhere")
RULES = ("pair-fifo", "edge-fifo", "group", "rendezvous", "graph")

Data = tuple[str, int, int]
"""What an op makes: ``f`` or ``b``, the stage, the microbatch (``w`` of weights)."""


class Act(NamedTuple):
    """``run`` (with the data that must have come), ``send``, ``recv``, ``wait`` for a send."""

    what: str
    needs: tuple[Data, ...] = ()
    data: Data = ("", 0, 0)
    peer: int = -1


class Outcome(NamedTuple):
    """Whether some interleaving stops early, whether all do, and whether a message was mixed up.

    ``stuck`` is a state in which nothing can move: how far ranks are, what has come and gone.
    """

    hangs: bool
    always: bool
    crossed: bool
    states: int
    stuck: tuple[tuple[int, ...], frozenset[tuple[int, int]]] | None


def members(text: str) -> list[tuple[str, int, int]]:
    """(kind, stage, microbatch) of each member."""
    found = re.findall(r"(\d+)(F|BW|B|W)(\d+)", text)
    return [(kind, int(stage), int(microbatch)) for stage, kind, microbatch in found]


class Flow:
    """Which data an op takes and makes, and where stages are."""

    def __init__(self, doc: dict[str, Any]) -> None:
        pipe = Pipe(doc)
        self.home, self.ranks, self.jobs = pipe.home, len(pipe.devices), [*pipe.modes]
        self.pairs = [{*entry["ops"]} for entry in pipe.overlap.get("pairs", [])]
        hops = [two for route in pipe.routes for two in pairwise(route.stages)]
        self.after = dict(hops)
        self.before = {there: here for here, there in hops}

    def takes(self, kind: str, stage: int, microbatch: int) -> Data | None:
        if kind == "F":
            return ("f", self.before[stage], microbatch) if stage in self.before else None
        if kind == "W":
            return "b", stage, microbatch
        if stage in self.after:
            return "b", self.after[stage], microbatch
        return "f", stage, microbatch

    def may_pair(self, one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
        kinds = {f"{op[1]}{op[0]}" for op in (one, other)}
        near = self.home[one[1]] == self.home[other[1]] and one[1:] != other[1:]
        return near and ({one[0], other[0]} == {"F", "BW"} or kinds in self.pairs)

    def goes_to(self, data: Data) -> int | None:
        """The rank that data is sent to, if it is another one."""
        way, stage, _ = data
        there = {"f": self.after, "b": self.before}.get(way, {}).get(stage)
        return None if there is None or self.home[there] == self.home[stage] else self.home[there]


def made_by(kind: str, stage: int, microbatch: int) -> Data:
    return {"F": "f", "W": "w"}.get(kind, "b"), stage, microbatch


Step = dict[str, Any]
"""``step`` (``run``, ``SEND_F``, ``RECV_B``, ...), ``op``, ``peer``."""


def posted_late(doc: dict[str, Any], rows: list[list[str]]) -> list[list[Step]]:
    """Each receive directly before its op, each send directly after; of a pair, F first.

    Of two F's or two backwards, the one that the text has first.
    """
    pipe = Flow(doc)
    found: list[list[Step]] = []
    for rank, row in enumerate(rows):
        found.append([])
        for text in row:
            ops = sorted(members(text), key=lambda op: op[0] != "F")
            for op in ops:
                data = pipe.takes(*op)
                if data is not None and pipe.home[data[1]] != rank:
                    found[-1].append(_step("RECV", op, pipe.home[data[1]]))
            found[-1].append({"step": "run", "op": text, "peer": None})
            for op in ops:
                if (peer := pipe.goes_to(made_by(*op))) is not None:
                    found[-1].append(_step("SEND", op, peer))
    return found


def _step(word: str, op: tuple[str, int, int], peer: int) -> Step:
    kind, stage, microbatch = op
    way = "F" if kind == "F" else "B"
    return {"step": f"{word}_{way}", "op": f"{stage}{kind}{microbatch}", "peer": peer}


def posted_anyhow(steps: list[list[Step]], rng: Random) -> list[list[Step]]:
    """Some receives earlier, some sends later, by a few places each."""
    found = []
    for row in steps:
        moved = list(row)
        for step in row:
            if step["step"] != "run" and rng.random() < 0.3:
                at = moved.index(step)
                way = -1 if step["step"].startswith("RECV") else 1
                there = max(0, min(len(row) - 1, at + way * rng.randint(1, 4)))
                moved.insert(there, moved.pop(at))
        found.append(moved)
    return found


def programs(doc: dict[str, Any], steps: list[list[Step]], buffers: int = 0) -> list[list[Act]]:
    """What ranks do; with ``buffers``, an op first waits for the send from the buffer it takes."""
    pipe = Flow(doc)
    found = []
    for rank, row in enumerate(steps):
        acts: list[Act] = []
        written: dict[tuple[str, int], list[Data]] = defaultdict(list)  # by a stage, each way
        for step in row:
            ops = members(step["op"])
            taken = [data for op in ops if (data := pipe.takes(*op)) is not None]
            match step["step"].split("_"):
                case ["run"]:
                    made = [made_by(*op) for op in ops]
                    for data in made if buffers else []:
                        before = written[data[:2]]
                        if len(before) >= buffers:
                            acts.append(Act("wait", (), before[-buffers]))
                        if pipe.goes_to(data) is not None:
                            before.append(data)
                    acts.append(Act("run", tuple(d for d in taken if pipe.home[d[1]] != rank)))
                case ["WAIT", "SEND", _]:
                    acts.append(Act("wait", (), made_by(*ops[0])))
                case ["SEND", _]:
                    acts.append(Act("send", (), made_by(*ops[0]), step["peer"]))
                case ["RECV", _]:
                    acts.append(Act("recv", (), taken[0], step["peer"]))
        found.append(acts)
    return found


def is_a_cycle(
    doc: dict[str, Any], acts: list[list[Act]], stuck: Any, cycle: list[dict[str, Any]]
) -> bool:
    """Whether each of these has been posted, is not over, and needs what its peer has later."""
    pipe, (at, done) = Flow(doc), stuck

    def place(rank: int, text: str) -> int:
        word, op = text.split(" ")
        (one,) = members(op)
        what = word.split("_")[0].lower()
        data = pipe.takes(*one) if what == "recv" else made_by(*one)
        found = (n for n, act in enumerate(acts[rank]) if (act.what, act.data) == (what, data))
        return next(found)

    for one, after in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        here, there = place(one["rank"], one["step"]), place(one["peer"], one["needs"])
        posted = here <= at[one["rank"]]
        over = (one["rank"], here) in done or (one["peer"], there) in done
        later = place(after["rank"], after["step"]) < there
        if not posted or over or not later or after["rank"] != one["peer"]:
            return False
    return bool(cycle)


State = tuple[tuple[int, ...], tuple[tuple[tuple[int, ...], ...], ...], frozenset[tuple[int, int]]]


def simulate(acts: list[list[Act]], rule: str) -> Outcome:
    """Visit all states: where each rank is, what is posted in which queue, what has come or gone.

    A queue is a list of places in the rank's program, first the one whose turn it is.
    """
    names: list[dict[Any, int]] = [{} for _ in acts]  # of each rank, its queues by key
    for rank, row in enumerate(acts):
        for act in row:
            if act.peer >= 0:
                names[rank].setdefault(_key(rule, act), len(names[rank]))
    first: State = (
        tuple(0 for _ in acts),
        tuple(tuple(() for _ in name) for name in names),
        frozenset(),
    )
    seen, todo, ends, crossed, stuck = {first}, [first], [], False, None
    while todo:
        state = todo.pop()
        moved = False
        for after, mixed in _moves(acts, names, rule, state):
            moved = True
            crossed = crossed or mixed
            if after not in seen:
                seen.add(after)
                todo.append(after)
        if not moved:
            at, queues, done = state
            over = all(n == len(row) for n, row in zip(at, acts, strict=True))
            ends.append(over and not any(map(any, queues)))
            stuck = stuck if ends[-1] else (at, done)
    return Outcome(not all(ends), not any(ends), crossed, len(seen), stuck)


def _key(rule: str, act: Act) -> Any:
    if rule in ("group", "rendezvous"):
        return ""
    return act.peer if rule == "pair-fifo" else (act.peer, act.what)


def _moves(
    acts: list[list[Act]], names: list[dict[Any, int]], rule: str, state: State
) -> Iterator[tuple[State, bool]]:
    at, queues, done = state

    def gone(rank: int, what: str, data: Data) -> bool:
        return (rank, acts[rank].index(Act(what, (), data, _peer(acts[rank], what, data)))) in done

    for rank, here in enumerate(at):
        if here == len(acts[rank]):
            continue
        act = acts[rank][here]
        queued = queues
        if act.what == "run" and not all(gone(rank, "recv", data) for data in act.needs):
            continue
        if act.what == "wait" and not gone(rank, "send", act.data):
            continue
        if act.what in ("send", "recv"):
            if rule == "rendezvous" and (rank, here) not in done:
                if here in queues[rank][0]:
                    continue  # called, and it has not returned
                yield (at, _changed(queues, rank, 0, (here,)), done), False
                continue
            if rule != "rendezvous":
                which = names[rank][_key(rule, act)]
                queued = _changed(queues, rank, which, (*queues[rank][which], here))
        yield (_replaced(at, rank, here + 1), queued, done), False
    heads = [
        (rank, which, queue[0])
        for rank, of in enumerate(queues)
        for which, queue in enumerate(of)
        if queue
    ]
    for rank, which, here in heads:
        send = acts[rank][here]
        for other, there_which, there in heads:
            recv = acts[other][there]
            if (send.what, send.peer, recv.what, recv.peer) == ("send", other, "recv", rank):
                rest = _changed(queues, rank, which, queues[rank][which][1:])
                rest = _changed(rest, other, there_which, rest[other][there_which][1:])
                yield (at, rest, done | {(rank, here), (other, there)}), send.data != recv.data


def _peer(row: list[Act], what: str, data: Data) -> int:
    return next(act.peer for act in row if act.what == what and act.data == data)


def _replaced(of: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*of[:place], value, *of[place + 1 :])


def _changed(queues: Any, rank: int, which: int, queue: tuple[int, ...]) -> Any:
    return _replaced(queues, rank, _replaced(queues[rank], which, queue))


def random_order(doc: dict[str, Any], rng: Random, *, plain: bool = False) -> list[list[str]]:
    """Any valid order: one op after the other whose data is there, on any rank, a few as pairs.

    Half of them take the microbatches of a stage in turn, as people write orders, and some of these
    run all forwards first. ``plain``: in turn, with whole backwards, and without pairs.
    """
    split, pairs, tame = rng.choice([0, 0.5, 1]), rng.choice([0, 0, 0.5]), rng.random() < 0.5
    split, pairs, tame = (0, 0, True) if plain else (split, pairs, tame)
    first = tame and rng.random() < 0.4
    pipe = Flow(doc)
    left = [("F", *job) for job in pipe.jobs]
    for job in pipe.jobs:
        apart = rng.random() < split if not tame else split == 1 or job[0] % 2 < 2 * split
        left += [("B", *job), ("W", *job)] if apart else [("BW", *job)]
    there: set[Data] = set()
    rows: list[list[str]] = [[] for _ in range(pipe.ranks)]
    bias = {op: rng.random() for op in left}  # some orders are close to one direction, some wild
    while left:
        ready = [op for op in left if (need := pipe.takes(*op)) is None or need in there]
        if tame:  # of a stage's ops of one kind, the first
            ready = [one for one in ready if one == min(x for x in left if x[:2] == one[:2])]
        if first:
            ready = [one for one in ready if one[0] == "F"] or ready
        op = min(ready, key=lambda one: bias[one] + rng.random() * 0.5)
        here = [op]
        others = [one for one in ready if pipe.may_pair(one, op)]
        if others and rng.random() < pairs:
            here = sorted([op, rng.choice(others)], key=lambda one: one[0] != "F")
        texts = [f"{stage}{kind}{microbatch}" for kind, stage, microbatch in here]
        rows[pipe.home[op[1]]].append(texts[0] if len(texts) == 1 else f"({'+'.join(texts)})")
        for one in here:
            left.remove(one)
            there.add(made_by(*one))
    return rows


def random_problem(rng: Random, *, listed: bool = False) -> tuple[str, dict[str, Any]]:
    """A small pipeline: its shape by name, and its document.

    ``listed``: two F's, two backwards, or one of each may pair, whichever they are.
    """
    shape = rng.choice(SHAPES)
    doc = drawn(
        rng.random(),
        shapes=(shape,),
        devices=(2, 3),
        microbatches=(2, 3),
        ops=40,
        longest=1,
        backwards=("either",),
        memory=("none",),
        delays=(0,),
        pairs=("factor and FB" if listed else "FB",),
        kinds=[*combinations_with_replacement(("F", "B", "BW"), 2)],
    )
    return shape, doc
