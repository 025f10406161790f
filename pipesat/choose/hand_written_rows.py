"""Proposals that users know: hand-written schedules on the even and the balanced split.

A family is one schedule in one shape. Each has one build before any has a second one. Then what
users know and a gain is stated over comes first, with every setting: whenever time ends, what is
left is counted.

Interleaved 1F1B runs in groups of microbatches whose size Megatron-LM lets its user choose within
guards (:mod:`pipesat.layers.megatron`), which recomputes all layers, or as many first ones on every
stage. For torch the same is searched, and any stages may recompute.
Splits are moved layer by layer while that makes the schedule shorter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Final, Literal, NamedTuple

from pipesat.choose.candidates import Candidate, Flags, has_variant
from pipesat.choose.orders import KNOWN, SCHEDULES
from pipesat.choose.plan_tables import loads_of
from pipesat.choose.question import Question
from pipesat.choose.rows import Row, fits, marked, row_of, ships, to_do
from pipesat.choose.splits import balanced_partition, even_partition
from pipesat.core.claims import Tried
from pipesat.core.errors import BadInput, Infeasible, NotApplicable
from pipesat.core.geometry import CHUNKS
from pipesat.core.settings import OneRoutePlacement
from pipesat.heuristics.registry import GiveUp, never
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import OVERLAP, group_sizes, most_blocks, refusal
from pipesat.layers.pipeline import Pipeline, shape_name
from pipesat.workflows.hand_written import baseline

_IN_GROUPS: Final = ("interleaved-1f1b", "interleaved-overlapped")
_MOST_OF_OTHERS: Final = {True: 4, False: 8}  # stages per rank, where any order runs or not

LeftOut = Callable[[str, str], None]
"""Told the name of what has no row, and why."""
Asked = Callable[..., Candidate]
"""Called with flags of recomputation, and how many first layers of each stage recompute."""
Made = Callable[[Candidate], Row]


class Setting(NamedTuple):
    """What a user of a schedule can choose, and what is counted as tried."""

    name: str
    family: str
    split: str
    group: int | None = None
    shipped: bool = False


def moved_setting(name: str) -> Setting:
    """Return the setting of a schedule's best row, its split moved layer by layer."""
    return Setting(name, f"{name} on moved splits", "ours")


def counted(settings: Mapping[Setting, bool], by: Literal["name", "family"]) -> dict[str, Tried]:
    """Return how many settings of each schedule, or family, were tried."""
    found: dict[str, list[bool]] = {}
    for setting, tried in settings.items():
        found.setdefault(getattr(setting, by), []).append(tried)
    return {name: Tried(name, sum(one), len(one)) for name, one in found.items()}


@dataclass(frozen=True)
class Build:
    """A hand-written schedule in a shape, on a split, in groups of so many microbatches.

    ``shipped``: a framework has it so, with nothing chosen but the number of stages.
    """

    name: str
    shape: Pipeline
    split: str
    group: int | None = None
    shipped: bool = False

    @property
    def family(self) -> str:
        """Schedule and shape."""
        return f"{self.name} in a {shape_name(self.shape)}"

    @property
    def setting(self) -> Setting:
        """What is counted."""
        return Setting(self.name, self.family, self.split, self.group, self.shipped)

    def rows(
        self,
        question: Question,
        left_out: LeftOut,
        over: GiveUp = never,
        beat: int | None = None,
    ) -> list[Row] | None:
        """Return its rows, with what recomputing suits it; ``None`` if there is no such setting.

        Those that cannot be shorter than ``beat`` need not be among them.
        """
        try:
            cut = split_of(self.split, question.layers, self.shape)
            if cut is None:
                return None
            own = self.name, self.split, self.shape, cut, self.group
            return [*rows_on(question, *own, over, beat)]
        except (BadInput, Infeasible, NotApplicable) as error:
            group = "" if self.group is None else f", groups of {self.group}"
            left_out(f"{self.family}{group} ({self.split} split)", str(error))
            return None


@lru_cache(maxsize=256)
def split_of(name: str, layers: Layers, shape: Pipeline) -> tuple[range, ...] | None:
    """Return the even or the balanced split; ``None`` if the balanced one is the even one.

    Raises
    ------
    BadInput, Infeasible, NotApplicable
        If there is none.
    """
    if name == "even":
        return even_partition(layers, shape)
    balanced = balanced_partition(layers, shape)
    with contextlib.suppress(BadInput, Infeasible, NotApplicable):
        return None if balanced == even_partition(layers, shape) else balanced
    return balanced


def hand_written_of(question: Question, placement: OneRoutePlacement) -> tuple[str, ...]:
    """Return the names that the table has of a placement, for the runtime."""
    names, pairs = SCHEDULES[placement], question.overlap is not None
    if pairs and placement == "loop":
        names += ("interleaved-overlapped",)
    if question.any_order:
        return names
    own = (*question.record.built_in, *(["dualpipev"] if pairs else []))  # to compare with pairs
    return tuple(name for name in names if name in own)


def builds(question: Question, left_out: LeftOut) -> list[list[Build]]:
    """Return the builds of every family in rounds: the first of each, the second of each, and on.

    In every round the chain comes first, then the V and loops, those of fewer stages first.
    """
    p, m, any_order = question.devices, question.microbatches, question.any_order
    sizes = group_sizes(p, m) if p > 1 else []
    if not any_order and question.overlap is None:
        left_out(OVERLAP[0], "tried if --overlap says what a pair of F and BW takes")
    if not any_order and not sizes:
        names = hand_written_of(question, "loop")
        left_out(" and ".join(names), refusal(p, 2, m) or "")
    others = sorted((size for size in sizes if size != p), key=lambda s: (m % s != 0, s))
    usual = [None] if any_order or p in sizes else []  # one microbatch per device
    most = len(question.layers) // p if p > 1 else CHUNKS
    shapes = [question.shape("chain"), question.shape("vee"), question.shape("loop")]
    shapes += [question.shape("loop", chunks) for chunks in range(CHUNKS + 1, most + 1)]
    families = []
    for shape in shapes:
        for name in hand_written_of(question, shape.placement):
            if name not in KNOWN and shape.chunks > _MOST_OF_OTHERS[any_order]:
                continue
            grouped = name in _IN_GROUPS
            groups = [*usual, *others] if grouped else [None] if shape.chunks == CHUNKS else []
            families.append(
                [
                    Build(name, shape, split, group, ships(question, shape, split, group))
                    for group in groups
                    for split in ("even", "balanced")
                ]
            )
    rounds = zip_longest(*filter(None, families))
    return [[build for build in one if build is not None] for one in rounds]


def rows_on(
    question: Question,
    name: str,
    split: str,
    shape: Pipeline,
    partition: tuple[range, ...],
    group: int | None = None,
    over: GiveUp = never,
    beat: int | None = None,
) -> Iterator[Row]:
    """Yield the row of the recomputation with which a schedule runs fastest.

    If that needs work by hand, the fastest that needs none follows. If nothing fits, it is what
    needs least memory. Once it is ``over``, no more ways to recompute are tried. Nor are those that
    cannot be shorter than ``beat``, where the runtime sets all that is to be done.

    Raises
    ------
    NotApplicable
        If the schedule does not exist on this shape.
    """
    runtime = question.runtime_in(shape.placement)
    build = partial(baseline, name, group=group)

    def asked(flags: Flags = (), first: int | None = None) -> Candidate:
        return question.candidate(partition, shape, flags, runtime, first=first)

    def made(candidate: Candidate) -> Row:
        return row_of(build, name, split, candidate, group)

    if runtime is not None and not question.any_order:
        ways = _first_layers(question, asked, made, partition, over, beat)
    else:
        ways = _less_and_less(question, asked, made, partition, over, beat)
    if not (rows := [*ways]):
        return
    best = marked(question, plainly_named(question, min(rows, key=_worth)))
    yield best
    easy = [row for row in rows if row.fits and not to_do(question, row)[1]]
    if best.by_hand and easy:
        yield marked(question, plainly_named(question, min(easy, key=_worth)))


def _worth(row: Row) -> tuple[bool, int, int]:
    return not row.fits, row.makespan if row.fits else max(row.peaks), len(row.again)


def _all_of(question: Question, partition: tuple[range, ...]) -> Flags:
    return tuple(has_variant(question.layers, part) for part in partition)


def _first_layers(
    question: Question,
    asked: Asked,
    made: Made,
    partition: tuple[range, ...],
    over: GiveUp,
    beat: int | None,
) -> Iterator[Row]:
    """Nothing recomputes, or as few first layers of every stage as fit, or all."""
    able = question.may_recompute
    firsts = range(1, most_blocks(question.layers, partition)) if able else ()
    candidates = [asked((), first) for first in (None, *firsts)]
    for number, candidate in enumerate(candidates):
        if beat is None or candidate.bound.value < beat:
            row = made(candidate)
            yield row
            if row.fits:  # more would only take longer
                break
        if number and over():
            break
    every = asked(_all_of(question, partition))
    if able and (beat is None or every.bound.value < beat):
        yield made(every)


def _less_and_less(
    question: Question,
    asked: Asked,
    made: Made,
    partition: tuple[range, ...],
    over: GiveUp,
    beat: int | None,
) -> Iterator[Row]:
    """Nothing recomputes, or all stages, or ever more of them.

    First it is always the first one left, as early stages hold their activations longest. Then,
    from none again, always one of the device that needs most memory of those that have one left,
    and there the stage that saves most. Which stages these are does not depend on how much memory
    there is, so whatever fits into some memory is also tried with more: more never makes the best
    of them worse. The end is left out where recomputing makes the devices' work alone longer than
    the best so far takes, or ``beat``.
    """
    none = made(asked())
    yield none
    if not question.may_recompute:
        return
    every = made(asked(_all_of(question, partition)))
    yield every
    homes, saved = none.shape.homes, [_saved(question, part) for part in partition]

    def fullest(row: Row, left: set[int]) -> int:
        peaks = row.peaks
        return max(left, key=lambda stage: (peaks[homes[stage]], saved[stage], -stage))

    known = [x.makespan for x in (none, every) if x.fits]
    best = min(known if beat is None else [*known, beat], default=None)
    for choose in (lambda _, left: min(left), fullest):
        left = {stage for stage, able in enumerate(_all_of(question, partition)) if able}
        flags, row = [False] * len(partition), none
        while len(left) > 1 and not over():
            load = max(loads_of(row.problem))
            if best is not None and question.overlap is None and load >= best:
                break
            stage = choose(row, left)
            left.remove(stage)
            flags[stage] = True
            row = made(asked(tuple(flags)))
            yield row
            if row.fits:
                best = row.makespan if best is None else min(best, row.makespan)


def _saved(question: Question, part: range) -> int:
    own = [question.layers.layers[k] for k in part]
    return sum(
        one.amount("held_after_F") - one.amount("held_after_F", recompute=True) for one in own
    )


def plainly_named(question: Question, row: Row) -> Row:
    """Call a row by the plainest name that has its order: of some problems, zb-h1 is 1F1B."""
    names = hand_written_of(question, row.shape.placement)
    for name in names[: names.index(row.name)] if row.name in names else ():
        with contextlib.suppress(NotApplicable):
            if baseline(name, row.problem).order == row.schedule.order:
                return replace(row, name=name, group=None)
    return row


def moved_rows(question: Question, start: Row, over: GiveUp) -> Iterator[Row]:
    """Yield ever better rows: a row's split, moved a layer at a time while it helps."""
    last = start
    while (better := _better_neighbour(question, last, over)) is not None:
        yield better
        last = better
    if last is not start:
        own = last.name, "ours", last.shape, last.partition, last.group
        yield from rows_on(question, *own, over)


def _better_neighbour(question: Question, row: Row, over: GiveUp) -> Row | None:
    """The best neighbour that runs, if it is better."""
    build, asked, best = partial(baseline, row.name, group=row.group), row.candidate, row
    for partition, wanted in question.space.around(asked):
        if over():
            break
        flags = question.space.settled(row.shape, partition, wanted)
        near = question.candidate(partition, row.shape, flags, asked.runtime, first=asked.first)
        if near.bound.value >= best.makespan:
            continue
        with contextlib.suppress(NotApplicable):
            schedule = build(near.problem)
            if schedule.makespan < best.makespan and fits(near.problem, schedule):
                made = Row(row.name, "ours", near, schedule, fits=True, group=row.group)
                made = marked(question, made)
                best = made if made.runs else best
    return None if best is row else best
