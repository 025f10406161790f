"""From the rows of a trace to the steps of a pipeline: numbers, placement, one clock, whole steps.

Steps of one job have the same ops. What is cut off at either end of a trace is left out; what
contradicts this (ops that overlap, that start before their input, two jobs) is refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from operator import attrgetter
from statistics import median
from typing import Final, TypeAlias

from pipesat.core.errors import BadInput, require, said_of
from pipesat.core.grouping import grouped, in_rows
from pipesat.measure.timeline.readers.rows import Trace, TraceRow
from pipesat.problem.geometry import ONE_ROUTE, Geometry
from pipesat.problem.ops import KINDS, Kind, Op

Times: TypeAlias = Mapping[Op, tuple[float, float]]
"""Start and end of every op, in us."""
_LONG_FIRST: Final = 1.25  # times the median step: a warm-up
_ONE_JOB: Final = ": is it all of one job?"
_CUT: Final = "ranges of two ops are cut in proportion to what each takes alone"
_HOST: Final = "times of the host, which runs ahead of the GPU: costs may be too short"
_JITTER, _LATE = 0.05, 0.5
"""Of the median op: how much earlier than its input an op may seem to start before clocks are taken
to differ, and before these are not ranks of one job."""


@dataclass(frozen=True)
class ReplicaStep:
    """One step of one replica, from the start of its first op.

    ``joint`` has the ops of one range, each by all of them, ``turned_to`` when the runtime turned
    to an op, where its range tells and includes the wait for its input. ``waiting`` are ops that
    began before their input was sent, and of which nothing tells when it came. ``shifted``: clocks
    of its ranks did not agree, so delays between ranks are not seen.
    """

    replica: int
    iteration: int
    times: Times
    order: tuple[tuple[Op, ...], ...]
    joint: Mapping[Op, Sequence[Op]] = field(default_factory=dict)
    turned_to: Mapping[Op, float] = field(default_factory=dict)
    waiting: frozenset[Op] = frozenset()
    shifted: bool = False

    @cached_property
    def length(self) -> float:
        """Time from the first op's start to the last one's end, in us."""
        return max(end for _, end in self.times.values())

    @cached_property
    def lengths(self) -> dict[Op, float]:
        """How long every op took, in us."""
        return {op: end - start for op, (start, end) in self.times.items()}


@dataclass(frozen=True)
class WholeSteps:
    """The whole steps of a run, and what was left out.

    Attributes
    ----------
    homes
        Device of every stage.
    placement
        ``chain``, ``loop``, ``vee``, or what else it is.
    warm_ups
        Numbers of the first iterations that took longer, with how many times the median.
    partial
        Steps that lack ops, of all replicas.
    notes
        What a reader should know.
    """

    trace: Trace
    homes: tuple[int, ...]
    placement: str
    microbatches: int
    steps: tuple[ReplicaStep, ...]
    warm_ups: Mapping[int, float]
    partial: int
    notes: tuple[str, ...]

    @property
    def devices(self) -> int:
        """Number of pipeline ranks."""
        return max(self.homes) + 1

    @property
    def replicas(self) -> list[int]:
        """Replicas that have steps."""
        return sorted({step.replica for step in self.steps})

    @cached_property
    def waiting(self) -> dict[Kind, list[int]]:
        """Stages whose ops of a kind hold the wait for input in half of all cases, or more.

        Their median is then no cost.
        """
        number = Counter((op.stage, op.kind) for step in self.steps for op in step.waiting)
        half = len(self.steps) * self.microbatches / 2
        held = sorted(part for part, count in number.items() if count >= half)
        found = {kind: [stage for stage, of in held if of == kind] for kind in KINDS}
        return {kind: stages for kind, stages in found.items() if stages}


def steps_of(trace: Trace) -> WholeSteps:
    """Find the steps of a trace."""
    with said_of(trace.source):
        return _steps(trace)


def _steps(trace: Trace) -> WholeSteps:
    ranks = _ranks(trace)
    groups = grouped(
        ((row.replica, row.iteration or 0, row.rank), row) for row in _with_iterations(trace)
    )
    numbered = grouped(
        ((replica, iteration), row)
        for (replica, iteration, _), rows in groups.items()
        for row in _numbered(trace, rows, ranks)
    )
    named, homes = _named(trace, numbered, ranks)
    wanted, _ = Counter(map(frozenset, named.values())).most_common(1)[0]
    _require_whole(wanted, homes)
    for (replica, iteration), times in named.items():
        for strange in sorted(times.keys() - wanted)[:1]:
            raise BadInput(f"only step {iteration} of replica {replica} has {strange}{_ONE_JOB}")
    whole = sorted((key, times) for key, times in named.items() if times.keys() == wanted)
    for replica in {key[0] for key in named} - {key[0] for key, _ in whole}:
        raise BadInput(f"replica {replica} has no step as others have{_ONE_JOB}")
    steps = [_step(trace, *key, times, homes) for key, times in whole]
    warm = _warm_ups(steps) if trace.timed else {}
    cut = any(step.joint for step in steps)
    placement = next(
        (one for one in ONE_ROUTE if Geometry(one, ranks, len(homes) // ranks).homes == homes),
        "a placement of its own",
    )
    return WholeSteps(
        trace,
        homes,
        placement,
        max(op.microbatch for op in wanted) + 1,
        tuple(step for step in steps if step.iteration not in warm),
        warm,
        len(named) - len(whole),
        (*trace.notes, *[_CUT] * cut, *[_HOST] * trace.host_times),
    )


def _ranks(trace: Trace) -> int:
    """Return the number of pipeline ranks, all of which every replica has."""
    for row in trace.rows:
        if row.end < row.start:
            raise BadInput(
                f"{row.kind} at {row.start:g} us on rank {row.rank} takes "
                f"{row.end - row.start:g} us, expected no negative time"
            )
    ranks = grouped((row.replica, row.rank) for row in trace.rows)
    held = {replica: {*own} for replica, own in ranks.items()}
    most = max(held.values(), key=len)
    if len(most) < 2 or most != {*range(len(most))}:
        said = "of one rank only" if len(most) == 1 else f"of ranks {sorted(most)} only"
        raise BadInput(f"ops {said}, expected those of all ranks")
    for replica, own in held.items():
        require(
            own == most,
            f"replica {replica} has ranks {sorted(own)}, others {sorted(most)}{_ONE_JOB}",
        )
    return len(most)


_by_time: Final = attrgetter("start", "end")


def _with_iterations(trace: Trace) -> Iterator[TraceRow]:
    """Yield the rows with their iterations: where not said, each begins with the same forward."""
    ranks = grouped(((row.replica, row.rank), row) for row in trace.rows)
    if all(row.iteration is not None for row in trace.rows):
        yield from trace.rows
        return
    cuts = {key: _cuts(rows) for key, rows in ranks.items()}
    require(all(cuts.values()), "no forward of a rank is in it, expected those of all ranks")
    begun = max(ranks[key][starts[0]].start for key, starts in cuts.items())
    equal = len({len(starts) for starts in cuts.values()}) == 1
    for key, starts in cuts.items():
        steps = [ranks[key][a:b] for a, b in pairwise([*starts, len(ranks[key])])]
        # a rank recorded for longer began earlier: its steps are counted from the common one
        early = 0 if equal else sum(max(row.end for row in step) <= begun for step in steps)
        for number, step in enumerate(steps):
            yield from (row._replace(iteration=number - early) for row in step)


def _cuts(rows: list[TraceRow]) -> list[int]:
    """Return where steps begin, and sort the rows by time.

    A step begins with the forward of the lowest microbatch that starts while nothing is in flight.
    """
    rows.sort(key=_by_time)
    flying: set[tuple[int | None, int | None]] = set()
    alone = []
    for place, row in enumerate(rows):
        if row.kind == "F":
            alone += [place] * (not flying)
            flying.add((row.stage, row.microbatch))
        elif row.kind != "W":
            flying.discard((row.stage, row.microbatch))
    keys = {n: (rows[n].microbatch or 0, rows[n].stage or 0) for n in alone}
    return [n for n in alone if keys[n] == min(keys.values())]


def _numbered(trace: Trace, rows: list[TraceRow], ranks: int) -> Iterator[TraceRow]:
    """Yield a rank's rows with chunks and microbatches, and backwards called B if their W is apart.

    What has no number has that of Megatron's order: forwards go through the chunks in groups of one
    microbatch per rank, backwards alike from the last chunk (``get_schedule_table`` in
    ``megatron/core/pipeline_parallel/schedules.py``).
    """
    rows.sort(key=_by_time)
    apart = {(row.stage, row.microbatch) for row in rows if row.kind == "W"}
    chunks, seen = trace.chunks or 1, Counter[Kind]()
    total = Counter(row.kind for row in rows)
    for row in rows:
        if row.microbatch is None:
            group = seen[row.kind] // (ranks * chunks) * ranks
            width = max(1, min(ranks, total[row.kind] // chunks - group))
            chunk, place = divmod(seen[row.kind] - group * chunks, width)
            chunk = chunk if row.kind == "F" else chunks - 1 - chunk
            seen[row.kind] += 1
            yield row._replace(stage=chunk, microbatch=group + place)
        elif row.kind == "BW" and (row.stage, row.microbatch) in apart:
            yield row._replace(kind="B")
        else:
            yield row


Found: TypeAlias = Mapping[tuple[int, int], Sequence[TraceRow]]
"""Rows by replica and iteration."""


def _named(
    trace: Trace, found: Found, ranks: int
) -> tuple[dict[tuple[int, int], dict[Op, TraceRow]], tuple[int, ...]]:
    """Return the row of each op of every step, and the device of every stage.

    Where rows count chunks, stages are numbered along the pipeline. Two chunks are a V if second
    ones start later on the first rank than on the last.
    """
    turns = []
    for rows in found.values() if trace.chunks == 2 else ():
        first = {r.rank: r.start for r in rows if (r.kind, r.stage, r.microbatch) == ("F", 1, 0)}
        turns.append(first.get(0, 0.0) > first.get(ranks - 1, 0.0))
    v_shape = sum(turns) * 2 > len(turns)
    named: dict[tuple[int, int], dict[Op, TraceRow]] = {key: {} for key in found}
    homes: dict[int, int] = {}
    for key, row in ((key, row) for key, rows in found.items() for row in rows):
        stage = row.stage or 0
        if trace.chunks:
            back = v_shape and stage
            stage = 2 * ranks - 1 - row.rank if back else stage * ranks + row.rank
        op = Op(stage, row.kind, row.microbatch or 0)
        if (home := homes.setdefault(stage, row.rank)) != row.rank:
            raise BadInput(f"stage {stage} is on ranks {home} and {row.rank}{_ONE_JOB}")
        if op in named[key]:
            raise BadInput(f"{op} is twice in step {row.iteration}{_ONE_JOB}")
        named[key][op] = row
    if missing := {*range(max(homes) + 1)} - homes.keys():
        raise BadInput(
            f"stages {sorted(homes)} ran, and {sorted(missing)} did not: expected the traces of "
            "all ranks"
        )
    return named, tuple(homes[stage] for stage in range(len(homes)))


def _require_whole(ops: frozenset[Op], homes: Sequence[int]) -> None:
    for stage in range(len(homes)):
        for microbatch in range(max(op.microbatch for op in ops) + 1):
            kinds = "".join(kind for kind in KINDS if Op(stage, kind, microbatch) in ops)
            if kinds not in ("FBW", "F" + "BW"):
                lacking = "backward" if "F" in kinds else "forward"
                raise BadInput(
                    f"no step has the {lacking} of microbatch {microbatch} on stage {stage}: "
                    "expected whole steps of all ranks of one job"
                )


def _step(
    trace: Trace, replica: int, iteration: int, found: Mapping[Op, TraceRow], homes: Sequence[int]
) -> ReplicaStep:
    """Put a step together: nothing overlaps, nothing starts before its input is there."""
    at = {op: (row.start, row.end) for op, row in found.items()}
    ops = sorted(at, key=lambda op: (at[op], KINDS.index(op.kind)))
    order = in_rows(max(homes) + 1, ((homes[op.stage], op) for op in ops))
    if not trace.timed:
        return ReplicaStep(replica, iteration, at, order)
    joint: dict[Op, list[Op]] = {}
    for row in order:
        joint |= _cut(row, at)
        for before, after in pairwise(row):
            over = at[before][1] - at[after][0]
            if over > max(1.0, 0.01 * (at[before][1] - at[before][0])):
                raise BadInput(
                    f"{before} and {after} overlap by {over:.0f} us in step {iteration}, expected "
                    "one op at a time on a rank"
                )
    came = {op: row.came for op, row in found.items() if row.came is not None and op not in joint}
    began, waiting, shifted = _one_clock(trace, iteration, at, came, homes)
    zero = min(start for start, _ in at.values())
    times = {o: (a - zero, b - zero) for o, (a, b) in at.items()}
    turned = {op: start - zero for op, start in began.items()} if trace.waits_inside else {}
    return ReplicaStep(replica, iteration, times, order, joint, turned, waiting, shifted)


def _cut(row: Sequence[Op], at: dict[Op, tuple[float, float]]) -> dict[Op, list[Op]]:
    """Cut ranges of several ops in proportion to what each takes alone; return these ops."""
    joint = grouped((at[op], op) for op in row)
    alone = grouped(
        ((op.stage, op.kind), end - start)
        for (start, end), (op, *others) in joint.items()
        if not others
    )
    for (start, end), ops in joint.items():
        known = [alone.get((op.stage, op.kind)) for op in ops]
        shares = [1.0 if None in known else median(own or [1.0]) for own in known]
        ends = [*accumulate(shares, initial=0.0)]
        for op, (a, b) in zip(ops, pairwise(ends), strict=True):
            scale = (end - start) / (ends[-1] or 1.0)
            at[op] = (start + a * scale, start + b * scale)
    return {op: ops for ops in joint.values() if len(ops) > 1 for op in ops}


def inputs_of(op: Op, homes: Sequence[int], times: Mapping[Op, object]) -> Op | None:
    """Return the op that sends to this one from another device; ``None``: none does."""
    stage = op.stage - 1 if op.kind == "F" else op.stage + 1
    if op.kind == "W" or not 0 <= stage < len(homes) or homes[stage] == homes[op.stage]:
        return None
    kinds: tuple[Kind, ...] = ("F",) if op.kind == "F" else ("B", "BW")
    found = (Op(stage, kind, op.microbatch) for kind in kinds)
    return next((one for one in found if one in times), None)


def _one_clock(
    trace: Trace,
    iteration: int,
    at: dict[Op, tuple[float, float]],
    came: Mapping[Op, float],
    homes: Sequence[int],
) -> tuple[dict[Op, float], frozenset[Op], bool]:
    """Let clocks agree: shift ranks by the least that lets every op start after its input.

    Where times include the wait for the input, an op starts when it ``came``; if that is not known,
    it ends after its input was sent, and starts then. Returned are when ops seemed to start, and
    which of the latter did before, and whether a clock was shifted.
    """
    least: dict[tuple[int, int], float] = defaultdict(lambda: float("-inf"))
    sent = {op: source for op in at if (source := inputs_of(op, homes, at)) is not None}
    unknown = {op for op in sent if trace.waits_inside and op not in came}
    began = {op: start for op, (start, _) in at.items()}
    at |= {op: (start, at[op][1]) for op, start in came.items()}
    for op, source in sent.items():
        key = homes[source.stage], homes[op.stage]
        least[key] = max(least[key], at[source][1] - at[op][op in unknown])
    typical = median(end - start for start, end in at.values())
    shift = [0.0] * len({*homes})
    for (a, b), by in [*least.items()] * (0 if trace.host_times else len(shift)):
        if shift[a] + by - shift[b] > _JITTER * typical:
            shift[b] = shift[a] + by
    for (a, b), by in least.items():
        if shift[a] + by - shift[b] > _LATE * typical and not trace.host_times:
            raise BadInput(
                f"on rank {b}, ops of step {iteration} start before rank {a} sent their input, "
                f"whatever the clocks{_ONE_JOB}"
            )
    for op, (start, end) in at.items():
        by = shift[homes[op.stage]]
        at[op], began[op] = (start + by, end + by), began[op] + by
    waiting = frozenset(op for op in unknown if at[op][0] < at[sent[op]][1])
    for op in unknown:
        at[op] = (min(max(at[op][0], at[sent[op]][1]), at[op][1]), at[op][1])
    return began, waiting, any(shift)


def _warm_ups(steps: Sequence[ReplicaStep]) -> dict[int, float]:
    """Return the first iterations that took longer than all later ones, by their ratio."""
    lengths = grouped((step.iteration, step.length) for step in steps)
    found = {}
    typical = [(number, median(lengths[number])) for number in sorted(lengths)]
    for place, (number, length) in enumerate(typical[:-1]):
        later = [other for _, other in typical[place + 1 :]]
        if length < max(_LONG_FIRST * median(later), 1.1 * max(later[2:] or later)):
            break
        found[number] = length / median(later)
    return found
