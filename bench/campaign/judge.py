"""What is true of a problem, and what a result object says falsely: by the oracle alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import ceil, gcd
from pathlib import Path
from typing import Any

from bench.campaign.problems import TIMES
from tests.oracle.exact import Undecided, solve
from tests.oracle.reading import KEEP, KINDS, Amounts, Document, Op, Pipe
from tests.oracle.rules import Slot, Timed, broken_rules, inputs

RESULT_KEYS = (
    *("status", "objective", "value", "makespan", "span", "lower_bound", "lower_bound_source"),
    *("gap", "bubble", "peak_memory", "baseline", "schedule", "wall_s", "seed", "workers"),
    "versions",
)


@dataclass(frozen=True)
class Truth:
    """What is known about an optimum: ``lower <= optimum <= upper``; ``None``: not known."""

    lower: int
    upper: int | None = None
    feasible: bool | None = None
    schedule: Document | None = None

    @property
    def exact(self) -> bool:
        return self.feasible is False or self.upper == self.lower


def exact(document: Document, objective: str, effort: float) -> Truth:
    """The oracle's optimum; a lower bound alone where it needs more effort.

    Times that have a divisor are divided: best times are sums of durations and delays.
    """
    divisor = common_divisor(document)
    try:
        found = solve(divided(document, divisor), objective, effort=effort)
    except Undecided:
        return Truth(lower_bound(Pipe(document), objective))
    if found is None:
        return Truth(0, feasible=False)
    schedule: Document = {"format": "pipesat.schedule/1", "problem_sha256": digest(document)}
    for key, rows in (("devices", found.devices), ("copies", found.copies)):
        if key == "devices" or any(rows):
            schedule[key] = [[[text, a * divisor, b * divisor] for text, a, b in r] for r in rows]
    if found.modes:
        schedule["modes"] = [
            [s, m, name] for (s, m), name in sorted(found.modes.items()) if name != KEEP
        ]
    value = found.value * divisor
    return Truth(value, value, True, schedule)


def common_divisor(document: Document) -> int:
    """Largest number that divides all times; 1 where something else than plain times counts."""
    plain = not {"overlap", "order"} & document.keys() and "edges" not in document.get("comm", {})
    if not plain or any("modes" in stage for stage in document["stages"]):
        return 1
    times = [stage[key] for stage in document["stages"] for key in TIMES if key in stage]
    return gcd(*times, document.get("comm", {}).get("default", 0)) or 1


def divided(document: Document, by: int) -> Document:
    """All times divided."""
    if by == 1:
        return document
    stages = [
        {key: entry // by if key in TIMES else entry for key, entry in stage.items()}
        for stage in document["stages"]
    ]
    comm = {"default": document.get("comm", {}).get("default", 0) // by}
    return document | {"stages": stages, "comm": comm}


def lower_bound(pipe: Pipe, objective: str) -> int:
    """No valid schedule is below this: what a device has to do, and one microbatch's way."""
    load: Counter[int] = Counter()
    for (s, _), modes in pipe.modes.items():
        ways = [(x, way) for x in modes.values() for way in x.ways]
        load[pipe.home[s]] += min(
            sum(least(pipe, s, kind, x)[1] for kind in ("F", *way)) for x, way in ways
        )
    most = max(ceil(work) for work in load.values())
    if objective == "span":
        return most
    return max(most, longest_way(pipe))


def longest_way(pipe: Pipe) -> int:
    """Length of the longest way through forwards and backwards, each as short as it can be."""
    ends: dict[Op, int] = {}
    longest = 0
    for route in pipe.routes:
        jobs = [*product(range(len(route.classes)), route.stages)]
        for m, s in jobs:
            op = Op(s, "F", m)
            own = min(least(pipe, s, "F", x)[0] for x in pipe.modes[s, m].values())
            ends[op] = _ready(pipe, op, ends) + own
            longest = max(longest, ends[op])
        for m, s in reversed(jobs):
            ways = [
                [least(pipe, s, kind, x)[0] for kind in way]
                for x in pipe.modes[s, m].values()
                for way in x.ways
                if way
            ]
            if ways:
                begin = _ready(pipe, Op(s, "B", m), ends)
                for kind in ("B", "BW"):
                    ends[Op(s, kind, m)] = begin + min(way[0] for way in ways)
                longest = max(longest, begin + min(map(sum, ways)))
    return longest


def _ready(pipe: Pipe, op: Op, ends: Mapping[Op, int]) -> int:
    """When the inputs of an op can be there at the earliest."""
    return max((ends[source] + delay for source, delay in pipe.waits(op)), default=0)


def least(pipe: Pipe, s: int, kind: str, x: Amounts) -> tuple[int, Fraction]:
    """Least time that an op lasts, alone or in a pair; and its least part of a device's time."""
    alone = x.time[kind]
    if not pipe.overlap:
        return alone, Fraction(alone)
    together = []
    for other in range(len(pipe.home)):
        for a in {id(row): row for (t, _), row in pipe.modes.items() if t == other}.values():
            for k in KINDS:
                for y in a.values():
                    time = pipe.together(Op(s, kind, 0), Op(other, k, 1), x, y)
                    together += [] if time is None else [time]
    return min([alone, *together]), min([Fraction(alone), *(Fraction(t, 2) for t in together)])


def digest(document: Document) -> str:
    """The problem's digest, as files state it."""
    plain = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(plain.encode()).hexdigest()


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def schedule_in(path: Path) -> Any:
    """Return a schedule document, ``None`` if there is no file."""
    return load(path) if path.exists() else None


@dataclass
class Judged:
    """A problem with everything known about it; ``best`` is the least value of a valid schedule."""

    document: Document
    objective: str
    truth: Truth

    def __post_init__(self) -> None:
        self.pipe = Pipe(self.document)
        self.sha256 = digest(self.document)
        self.best = self.truth.upper

    def judge(self, schedule: Any) -> tuple[Timed | None, list[str]]:
        """Return a schedule, its value now known to be possible, or the rules that it breaks."""
        if schedule["format"] != "pipesat.schedule/1" or len(schedule["devices"]) != len(
            self.pipe.devices
        ):
            return None, ["form"]
        if schedule["problem_sha256"] != self.sha256:
            return None, ["digest"]
        modes = {(s, m): name for s, m, name in schedule.get("modes", [])}
        timed = Timed(self.pipe, schedule["devices"], schedule.get("copies", ()), modes)
        if broken := broken_rules(timed):
            return None, broken
        value = value_of(timed, self.objective)
        self.best = value if self.best is None else min(self.best, value)
        return timed, []

    @property
    def feasible(self) -> bool | None:
        return True if self.best is not None else self.truth.feasible


def value_of(timed: Timed, objective: str) -> int:
    return timed.makespan if objective == "makespan" else timed.span


def peaks(timed: Timed) -> list[int]:
    return [timed.peak(device) for device in timed.pipe.devices]


def bubbles(timed: Timed) -> dict[str, Fraction | None]:
    """The bubble of the makespan and of the span; a pair counts once, copies do not."""
    loads = [sum(useful(timed, slot) for slot in row) for row in timed.rows]
    whole, longest = timed.makespan, timed.span
    return {
        "makespan": 1 - Fraction(sum(loads), len(loads) * whole) if whole else None,
        "span": 1 - Fraction(max(loads), longest) if longest else None,
    }


def useful(timed: Timed, slot: Slot) -> int:
    """Time of an op or pair, at most what it takes with all members in keep."""
    keep = [timed.pipe.modes[op.stage, op.microbatch][KEEP] for op in slot.ops]
    if len(keep) == 1:
        return min(slot.end - slot.start, keep[0].time[slot.ops[0].kind])
    together = timed.pipe.together(*slot.ops, *keep)  # type: ignore[call-arg]
    assert together is not None
    return min(slot.end - slot.start, together)


def counts(timed: Timed) -> dict[str, dict[str, int]]:
    """How many pairs of which kinds run, and how many (stage, microbatch) in which mode."""
    pairs: Counter[str] = Counter()
    for slot in (slot for row in timed.rows for slot in row if len(slot.ops) == 2):
        pairs["+".join(sorted((op.kind for op in slot.ops), key=KINDS.index))] += 1
    modes = dict.fromkeys([KEEP, *(name for row in timed.pipe.modes.values() for name in row)], 0)
    for key in timed.pipe.modes:
        modes[timed.modes.get(key, KEEP)] += 1
    return {"pairs": dict(pairs), "modes": modes}


def retimed(judged: Judged, document: Document, objective: str) -> Document | None:
    """A valid document's order with the best times: as early as possible, or of minimum span.

    ``None`` if it has copies: their memory depends on times.
    """
    if any(document.get("copies", [])):
        return None
    modes = {(s, m): name for s, m, name in document.get("modes", [])}
    timed = Timed(judged.pipe, document["devices"], (), modes)
    numbers = {timed.place[slot.ops[0]]: slot for row in timed.rows for slot in row}
    node = {place: number for number, place in enumerate(numbers)}
    length = [slot.end - slot.start for slot in numbers.values()]
    arcs = [(node[place] - 1, node[place], length[node[place] - 1]) for place in node if place[2]]
    for before, after, delay in inputs(timed):
        one, other = node[timed.place[before]], node[timed.place[after]]
        if one != other:
            arcs.append((one, other, length[one] + delay))
    rows = [[node["op", d, n] for n in range(len(row))] for d, row in enumerate(timed.rows)]
    ends = [(row[0], row[-1]) for row in rows if row]

    def starts(span: int | None = None) -> list[int] | None:
        """The least starts, within a span if one is given; ``None`` if there are none."""
        more = [] if span is None else [(b, a, length[b] - span) for a, b in ends]
        found = [0] * len(length)
        for _ in range(len(found) + 1):
            before = [*found]
            for one, other, gap in (*arcs, *more):
                found[other] = max(found[other], found[one] + gap)
            if found == before:
                return found
        return None

    best = starts()
    assert best is not None
    if objective == "span":
        low, high = -1, max(best[b] + length[b] - best[a] for a, b in ends)
        while high - low > 1:
            middle = (low + high) // 2
            tried = starts(middle)
            low, high, best = (middle, high, best) if tried is None else (low, middle, tried)
    times = [
        [[slot.text, best[n], best[n] + length[n]] for slot, n in zip(*both, strict=True)]
        for both in zip(timed.rows, rows, strict=True)
    ]
    return document | {"devices": times}


def false_claims(
    judged: Judged, result: Document, schedule: Any, code: int, *, restricted: bool = False
) -> Iterator[str]:
    """Yield every statement of a result that is false.

    ``restricted``: value and bound are of a runtime's schedules alone, so a bound may be above the
    unrestricted optimum, and a baseline below the value.
    """
    missing = [key for key in RESULT_KEYS if key not in result]
    if missing:
        yield f"result lacks {missing}"
        return
    status, value, bound = result["status"], result["value"], result["lower_bound"]
    if status not in ("optimal", "feasible", "infeasible", "unknown"):
        yield f"status {status!r}"
    if (code == 3) != (status == "infeasible"):
        yield f"status {status} with exit code {code}"
    if result["objective"] != judged.objective:
        yield f"objective {result['objective']}, asked for {judged.objective}"
    yield from _of_schedule(judged, result, schedule)
    if judged.truth.feasible is False and status in ("optimal", "feasible"):
        yield f"status {status}, though no schedule exists"
    if status == "infeasible" and judged.feasible and not restricted:
        yield f"status infeasible, though a schedule of {judged.best} exists"
    if (status in ("optimal", "feasible")) != (value is not None):
        yield f"status {status} with value {value}"
    yield from _of_bound(judged, status, value, bound, result["gap"], restricted=restricted)
    baseline = result["baseline"]
    if baseline is not None:
        if baseline["value"] < judged.truth.lower:
            yield f"baseline {baseline} is below the optimum, at least {judged.truth.lower}"
        if value is not None and not restricted and baseline["value"] < value:
            yield f"baseline {baseline} is better than the value {value}"


def _of_schedule(judged: Judged, result: Document, schedule: Any) -> Iterator[str]:
    value = result["value"]
    if schedule is None:
        for key in ("makespan", "span", "peak_memory"):
            if (result[key] is None) != (value is None):
                yield f"{key} {result[key]} with value {value}"
        return
    timed, broken = judged.judge(schedule)
    if timed is None:
        yield f"its schedule is not valid: {broken[:3]}"
        return
    yield from false_figures(timed, result)
    if value != result[judged.objective]:
        yield f"value {value} is not the {judged.objective} {result[judged.objective]}"


def false_figures(timed: Timed, shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield makespan, span, bubbles, counts and peaks that a schedule does not have."""
    truth: dict[str, Any] = {"makespan": timed.makespan, "span": timed.span}
    truth |= {"peak_memory": peaks(timed)} | counts(timed)
    for key, true in truth.items():
        if shown.get(key, true) != true:
            yield f"{key} {shown[key]}, the schedule has {true}"
    for key, share in bubbles(timed).items():
        said = (shown.get("bubble") or {}).get(key)
        if not close(said, share):
            yield f"bubble of {key} {said}, the schedule has {share}"


def _of_bound(
    judged: Judged, status: str, value: Any, bound: Any, gap: Any, *, restricted: bool
) -> Iterator[str]:
    best, truth = judged.best, judged.truth
    if bound is not None and best is not None and bound > best and not restricted:
        yield f"lower bound {bound}, though a schedule of {best} exists"
    if value is None:
        if gap is not None:
            yield f"gap {gap} without a value"
        return
    if value < truth.lower:
        yield f"value {value}, though none is below {truth.lower}"
    if bound is not None and bound > value:
        yield f"lower bound {bound} above the value {value}"
    if (status == "optimal") != (bound == value):
        yield f"status {status} with value {value} and bound {bound}"
    true_gap = None if bound is None else Fraction(value - bound, value) if value else Fraction(0)
    if not close(gap, true_gap):
        yield f"gap {gap} with value {value} and bound {bound}"
    if status == "optimal" and truth.exact and value != truth.lower and not restricted:
        yield f"value {value} called optimal, the optimum is {truth.lower}"


def close(one: float | None, other: Fraction | float | None) -> bool:
    """Whether two shares are equal; nothing is equal to nothing alone."""
    if one is None or other is None:
        return one is None and other is None
    return abs(one - float(other)) < 1e-9
