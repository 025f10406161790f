"""From the rows of a trace to the steps of a pipeline: numbers, placement, one clock, whole steps.

Steps of one job have the same ops. What is cut off at either end of a trace is left out; what
contradicts this (ops that overlap, that start before their input, two jobs) is refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

from pipesat.core.errors import BadInput
from pipesat.core.ops import KINDS, Kind, Op
from pipesat.timeline.readers.rows import Row, Trace

Times: TypeAlias = Mapping[Op, tuple[float, float]]
"""Start and end of every op, in us."""
_LONG_FIRST: Final = 1.25  # times the median step: a warm-up
_JITTER, _LATE = 0.05, 0.5
"""Of the median op: how much earlier than its input an op may seem to start before clocks are taken
to differ, and before these are not ranks of one job."""


@dataclass(frozen=True)
class Step:
    """One step of one replica, from the start of its first op."""

    replica: int
    iteration: int
    times: Times
    order: tuple[tuple[Op, ...], ...]

    @cached_property
    def length(self) -> float:
        """Time from the first op's start to the last one's end, in us."""
        return max(end for _, end in self.times.values())

    @cached_property
    def lengths(self) -> dict[Op, float]:
        """How long every op took, in us."""
        return {op: end - start for op, (start, end) in self.times.items()}


@dataclass(frozen=True)
class Steps:
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
    steps: tuple[Step, ...]
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


def steps_of(trace: Trace) -> Steps:
    """Find the steps of a trace.

    Raises
    ------
    BadInput
        If the rows are not those of one pipeline.
    """
    _require_sound(trace)
    groups: dict[tuple[int, int], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in _with_iterations(trace):
        groups[row.replica, row.iteration or 0][row.rank].append(row)
    ranks = {row.rank for row in trace.rows}
    for step in groups.values():
        for rank in step:
            step[rank] = _split(_numbered(trace, sorted(step[rank], key=_by_time), len(ranks)))
    homes, placement = _homes(trace, groups.values(), len(ranks))
    named = {key: _named(step, homes, trace, len(ranks)) for key, step in groups.items()}
    wanted, _ = Counter(frozenset(times) for times in named.values()).most_common(1)[0]
    microbatches = _require_whole(trace, wanted, homes)
    whole = {key: times for key, times in named.items() if times.keys() == wanted}
    for (replica, iteration), times in named.items():
        if strange := times.keys() - wanted:
            text = f"{min(strange)} is in step {iteration} of replica {replica}, others lack it"
            raise BadInput(f"{text}: is it all of one job?", source=trace.source)
    notes = [*trace.notes]
    joint = any(
        len({(homes[op.stage], *at) for op, at in times.items()}) < len(times)
        for times in whole.values()
    )
    steps = [_step(trace, *key, times, homes) for key, times in sorted(whole.items())]
    if joint and trace.timed:
        notes.append("ranges of two ops are cut in proportion to what each takes alone")
    if trace.host_times:
        notes.append("times of the host, which runs ahead of the GPU: costs may be too short")
    warm = _warm_ups(steps) if trace.timed else {}
    kept = tuple(step for step in steps if step.iteration not in warm)
    partial = len(named) - len(whole)
    return Steps(trace, homes, placement, microbatches, kept, warm, partial, tuple(notes))


def _by_time(row: Row) -> tuple[float, float]:
    return row.start, row.end


def _require_sound(trace: Trace) -> None:
    ranks = sorted({row.rank for row in trace.rows})
    for row in trace.rows:
        if row.end < row.start:
            text = f"{_told(row)} takes {row.end - row.start:g} us, expected no negative time"
            raise BadInput(text, source=trace.source)
    if len(ranks) < 2 or ranks != [*range(len(ranks))]:
        said = "of one rank only" if len(ranks) == 1 else f"of ranks {ranks} only"
        raise BadInput(f"ops {said}, expected those of all ranks", source=trace.source)
    held: dict[int, set[int]] = defaultdict(set)
    for row in trace.rows:
        held[row.replica].add(row.rank)
    for replica, own in held.items():
        if len(own) < len(ranks):
            text = f"replica {replica} has {len(own)} ranks, others {len(ranks)}"
            raise BadInput(f"{text}: is it all of one job?", source=trace.source)


def _told(row: Row) -> str:
    numbers = "" if row.microbatch is None else f" of microbatch {row.microbatch}"
    return f"{row.kind}{numbers} on rank {row.rank} at {row.start:g} us"


def _with_iterations(trace: Trace) -> Iterator[Row]:
    """Yield the rows with their iterations: where not said, each begins with the same forward.

    That is the forward of the lowest microbatch that starts while nothing is in flight.
    """
    ranks: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in trace.rows:
        if row.iteration is None:
            ranks[row.replica, row.rank].append(row)
        else:
            yield row
    cuts = {}
    for key, rows in ranks.items():
        rows.sort(key=_by_time)
        cuts[key] = [*_cuts(rows)]
        if not cuts[key]:
            raise BadInput(f"no forward of rank {key[1]} is in it", source=trace.source)
    number = {len(starts) for starts in cuts.values()}
    first = max(starts[0][1] for starts in cuts.values()) if cuts else 0.0
    for key, rows in ranks.items():
        starts = cuts[key]
        # a rank recorded for longer began earlier: its steps are counted from the common one
        early = sum(end <= first for _, _, end in starts) if len(number) > 1 else 0
        for place, (begin, *_) in enumerate(starts):
            until = starts[place + 1][0] if place + 1 < len(starts) else len(rows)
            for row in rows[begin:until]:
                yield row._replace(iteration=place - early if place >= early else -1 - place)


def _cuts(rows: Sequence[Row]) -> Iterator[tuple[int, float, float]]:
    """Yield where steps begin: which row, and the times of that step's first start and last end."""
    flying: set[tuple[int | None, int | None]] = set()
    alone = []
    for place, row in enumerate(rows):
        key = (row.stage, row.microbatch)
        if row.kind == "F":
            if not flying:
                alone.append(place)
            flying.add(key)
        elif row.kind != "W":
            flying.discard(key)
    least = min(((rows[n].microbatch or 0, rows[n].stage or 0) for n in alone), default=(0, 0))
    found = [n for n in alone if (rows[n].microbatch or 0, rows[n].stage or 0) == least]
    for begin, until in zip(found, [*found[1:], len(rows)], strict=True):
        yield begin, rows[begin].start, max(row.end for row in rows[begin:until])


def _numbered(trace: Trace, rows: list[Row], ranks: int) -> list[Row]:
    """Give chunks and microbatches by Megatron's order to rows that have none.

    Forwards go through the chunks in groups of one microbatch per rank, backwards alike from the
    last chunk (``get_schedule_table`` in ``megatron/core/pipeline_parallel/schedules.py``).
    """
    if all(row.microbatch is not None for row in rows):
        return rows
    chunks, seen, named = trace.chunks or 1, Counter[Kind](), []
    for row in rows:
        count = seen[row.kind]
        seen[row.kind] += 1
        together = sum(other.kind == row.kind for other in rows) // chunks
        group = count // (ranks * chunks) * ranks
        width = max(1, min(ranks, together - group))
        chunk, place = divmod(count - group * chunks, width)
        chunk = chunk if row.kind == "F" else chunks - 1 - chunk
        named.append(row._replace(stage=chunk, microbatch=group + place))
    return named


def _split(rows: list[Row]) -> list[Row]:
    """Call a backward B where its W ran apart."""
    apart = {(row.stage, row.microbatch) for row in rows if row.kind == "W"}
    return [
        row._replace(kind="B") if row.kind == "BW" and (row.stage, row.microbatch) in apart else row
        for row in rows
    ]


def _homes(
    trace: Trace, steps: Iterable[Mapping[int, Sequence[Row]]], ranks: int
) -> tuple[tuple[int, ...], str]:
    """Return the device of every stage, and what that placement is called."""
    known: dict[int, int] = {}
    for row in (row for step in steps for rows in step.values() for row in rows):
        stage = _stage(row, trace, ranks, vee=False)
        if trace.chunks == 0 and known.setdefault(stage, row.rank) != row.rank:
            text = f"stage {stage} ran on ranks {known[stage]} and {row.rank}"
            raise BadInput(f"{text}: is it all of one job?", source=trace.source)
    if trace.chunks:
        vee = trace.chunks == 2 and _turns(trace)
        own = range(ranks)
        homes = (*own, *reversed(own)) if vee else (*own,) * trace.chunks
    else:
        if sorted(known) != [*range(len(known))]:
            text = f"stages {sorted(known)} ran, expected all from 0"
            raise BadInput(text, source=trace.source)
        homes = tuple(known[stage] for stage in range(len(known)))
    first = (*range(ranks),)
    if len(homes) == 2 * ranks and homes == (*first, *reversed(first)):
        return homes, "vee"
    if len(homes) % ranks == 0 and homes == first * (len(homes) // ranks):
        return homes, "chain" if len(homes) == ranks else "loop"
    return homes, "own placement"


def _turns(trace: Trace) -> bool:
    """Whether second chunks are passed from the last rank back: they start later on lower ranks."""
    starts: dict[tuple[int, int | None], dict[int, float]] = defaultdict(dict)
    for row in trace.rows:
        if row.kind == "F" and row.stage == 1 and row.microbatch == 0:
            starts[row.replica, row.iteration].setdefault(row.rank, row.start)
    downward = [own[min(own)] > own[max(own)] for own in starts.values()]
    return sum(downward) * 2 > len(downward)


def _stage(row: Row, trace: Trace, ranks: int, *, vee: bool) -> int:
    place = row.stage or 0
    if not trace.chunks:
        return place
    return 2 * ranks - 1 - row.rank if vee and place else place * ranks + row.rank


def _named(
    step: Mapping[int, Sequence[Row]], homes: Sequence[int], trace: Trace, ranks: int
) -> dict[Op, tuple[float, float]]:
    """Return when each op of a step ran."""
    vee = trace.chunks == 2 and homes[ranks] == ranks - 1
    found: dict[Op, tuple[float, float]] = {}
    for row in (row for rows in step.values() for row in rows):
        op = Op(_stage(row, trace, ranks, vee=vee), row.kind, row.microbatch or 0)
        if op in found:
            text = f"{_told(row)} ran before in the same step: is it all of one job?"
            raise BadInput(text, source=trace.source)
        found[op] = (row.start, row.end)
    return found


def _require_whole(trace: Trace, ops: frozenset[Op], homes: Sequence[int]) -> int:
    """Return the number of microbatches of a step that has every op of each."""
    microbatches = max(op.microbatch for op in ops) + 1
    for stage in range(len(homes)):
        for microbatch in range(microbatches):
            f, b, w, bw = (Op(stage, kind, microbatch) in ops for kind in KINDS)
            if not f or b == bw or b != w:
                lacking = "forward" if not f else "backward"
                text = (
                    f"no step has the {lacking} of microbatch {microbatch} on stage {stage}: "
                    "expected whole steps of all ranks"
                )
                raise BadInput(text, source=trace.source)
    return microbatches


def _step(trace: Trace, replica: int, iteration: int, times: Times, homes: Sequence[int]) -> Step:
    """Put a step together: nothing overlaps, nothing starts before its input is there."""
    rows: list[list[Op]] = [[] for _ in range(max(homes) + 1)]
    alone: dict[tuple[int, Kind], list[float]] = defaultdict(list)
    together = Counter((homes[op.stage], *at) for op, at in times.items())
    for op in sorted(times, key=lambda op: (times[op], KINDS.index(op.kind))):
        rows[homes[op.stage]].append(op)
        if together[homes[op.stage], *times[op]] == 1:
            alone[op.stage, op.kind].append(times[op][1] - times[op][0])
    order = tuple(map(tuple, rows))
    if not trace.timed:
        return Step(replica, iteration, times, order)
    at = dict(times)
    for row in order:
        _cut(row, at, {key: median(values) for key, values in alone.items()})
        for before, after in pairwise(row):
            over = at[before][1] - at[after][0]
            if over > max(1.0, 0.01 * (at[before][1] - at[before][0])):
                text = f"{before} and {after} overlap by {over:.0f} us in step {iteration}"
                raise BadInput(f"{text}, expected one op at a time on a rank", source=trace.source)
    _one_clock(trace, iteration, order, at, homes)
    zero = min(start for start, _ in at.values())
    return Step(replica, iteration, {o: (a - zero, b - zero) for o, (a, b) in at.items()}, order)


def _cut(
    row: Sequence[Op], at: dict[Op, tuple[float, float]], alone: Mapping[tuple[int, Kind], float]
) -> None:
    """Cut ranges of several ops in proportion to what each takes alone."""
    joint: dict[tuple[float, float], list[Op]] = defaultdict(list)
    for op in row:
        joint[at[op]].append(op)
    for (start, end), ops in joint.items():
        shares = [alone.get((op.stage, op.kind), 0.0) for op in ops]
        shares = shares if all(shares) else [1.0] * len(ops)
        begin = start
        for op, share in zip(ops, shares, strict=True):
            at[op] = (begin, begin + (end - start) * share / sum(shares))
            begin = at[op][1]


def inputs_of(op: Op, homes: Sequence[int], times: Mapping[Op, object]) -> Op | None:
    """Return the op that sends to this one from another device; ``None``: none does."""
    if op.kind == "W":
        return None
    stage = op.stage - 1 if op.kind == "F" else op.stage + 1
    if not 0 <= stage < len(homes) or homes[stage] == homes[op.stage]:
        return None
    kinds: tuple[Kind, ...] = ("F",) if op.kind == "F" else ("B", "BW")
    found = (Op(stage, kind, op.microbatch) for kind in kinds)
    return next((one for one in found if one in times), None)


def _one_clock(
    trace: Trace,
    iteration: int,
    order: Sequence[Sequence[Op]],
    at: dict[Op, tuple[float, float]],
    homes: Sequence[int],
) -> None:
    """Let clocks agree: shift ranks by the least that lets every op start after its input.

    Where times include the wait for the input, an op then starts when that has come.
    """
    least: dict[tuple[int, int], float] = defaultdict(lambda: float("-inf"))
    sent = {op: source for op in at if (source := inputs_of(op, homes, at)) is not None}
    for op, source in sent.items():
        key = homes[source.stage], homes[op.stage]
        least[key] = max(least[key], at[source][1] - at[op][1 if trace.waits_inside else 0])
    typical = median(end - start for start, end in at.values())
    shift = [0.0] * len(order)
    for _ in range(0 if trace.host_times else 2 * len(order)):
        moved = False
        for (a, b), by in least.items():
            if shift[a] + by - _JITTER * typical > shift[b]:
                shift[b], moved = shift[a] + by, True
        if not moved:
            break
    else:
        if not trace.host_times:
            late = {(a, b): shift[a] + by - shift[b] for (a, b), by in least.items()}
            a, b = max(late, key=lambda key: late[key])
            if late[a, b] > _LATE * typical:
                text = (
                    f"on rank {b}, ops of step {iteration} start before rank {a} has sent their "
                    "input, whatever the clocks: are these ranks of one job?"
                )
                raise BadInput(text, source=trace.source)
    for op, (start, end) in at.items():
        by = shift[homes[op.stage]]
        at[op] = (start + by, end + by)
    if trace.waits_inside:
        for op, source in sent.items():
            at[op] = (min(max(at[op][0], at[source][1]), at[op][1]), at[op][1])


def _warm_ups(steps: Sequence[Step]) -> dict[int, float]:
    """Return the first iterations that took longer than all later ones, by their ratio."""
    lengths: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        lengths[step.iteration].append(step.length)
    typical = {number: median(values) for number, values in sorted(lengths.items())}
    found = {}
    for number, length in typical.items():
        later = [other for n, other in typical.items() if n > number]
        if (
            not later
            or length < _LONG_FIRST * median(later)
            or length < 1.1 * max(later[2:] or later)
        ):
            break
        found[number] = length / median(later)
    return found
