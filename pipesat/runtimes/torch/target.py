"""torch's CSV with its hazards beside it, and configurations of frameworks that read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from pipesat.core.amounts import time_text
from pipesat.core.claims import against
from pipesat.core.errors import require
from pipesat.core.strict_json import decoded
from pipesat.core.torch_releases import RELEASES, TESTED, Release, release_named
from pipesat.layers.layout import layout_of_module_names
from pipesat.problem.geometry import Geometry
from pipesat.problem.problem import Problem
from pipesat.runtimes.options import Cut, Options, told_of
from pipesat.runtimes.reading import Meaning, rows_of
from pipesat.runtimes.runtime import Runtime
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.companions import MODES_SUFFIX, ORDER_SUFFIX, modes_text
from pipesat.runtimes.torch.csv_file import order_of_texts, torch_csv
from pipesat.runtimes.torch.hazards import SUFFIX as HAZARDS_SUFFIX
from pipesat.runtimes.torch.hazards import SplitBackwards, hazards_text, notes, split_in
from pipesat.schedule.microbatch_order import relabelled
from pipesat.schedule.schedule import Exported, Schedule

WriteFragments: TypeAlias = Callable[
    [Problem, Options, SplitBackwards], tuple[dict[str, str], list[str]]
]
ReadFragments: TypeAlias = Callable[[Exported], Iterable["Fragment"]]


def export_torch_csv(
    problem: Problem,
    schedule: Schedule,
    options: Options | None = None,
    releases: Sequence[Release] = (),
) -> Exported:
    """Return torch's ``compute_only`` CSV, with its hazards beside it.

    Where the order had to be changed for torch, the notes say how, and what it costs; and of
    overlapped pairs, what stock torch makes of them. An exact one is not changed. A remark is the
    first of the hazards, which are those of ``releases``, else of the one that is asked for.
    """
    options = options or Options()
    releases = releases or (release_named(options.version),)
    adapted = adapt(problem, schedule, exact=options.exact)
    beside = {
        HAZARDS_SUFFIX: hazards_text(
            adapted.problem, adapted.schedule, options.remark, releases
        ).encode()
    }
    told = [*notes(problem, schedule, adapted)]
    if problem.has_lists:
        beside[ORDER_SUFFIX] = (json.dumps(adapted.entering) + "\n").encode()
        told.append(
            "microbatches differ: hand them to torch in the order of the .order.json beside it, "
            "which has their own numbers"
        )
    if modes := modes_text(adapted.problem, adapted.schedule):
        beside[MODES_SUFFIX] = modes.encode()
        told.append(
            f"the order alone keeps every microbatch: {len(adapted.schedule.modes)} (stage, "
            f"microbatch) run in other memory modes, listed in the file that ends in {MODES_SUFFIX}"
        )
    changed, unit = "", problem.time_unit
    if adapted.schedule.makespan != schedule.makespan:
        now, before = adapted.schedule.makespan, schedule.makespan
        changed = (
            f"torch's order takes {time_text(now, unit)}, {against(now, before, 'the schedule')}"
        )
        if not any(mode.offload for stage in problem.stages for mode in stage.modes):
            changed += (
                ': solve with target="torch" (--for torch) for the best of the orders that torch '
                "runs"
            )
    data = torch_csv(adapted.problem, adapted.schedule).encode()
    order = adapted.schedule.order
    if problem.has_lists:
        order = relabelled(adapted.problem, order, [adapted.entering])
    return Exported(data, beside, tuple(told), changed, means={"order": rows_of(order)})


def read_torch(
    _: Runtime, problem: Problem, exported: Exported, __: Options, csv: str = ""
) -> Meaning:
    """Read torch's CSV, the file itself or the one of that suffix beside it, and what is beside."""

    def text(suffix: str) -> str | None:
        data = exported.beside.get(suffix)
        return None if data is None else decoded(data, suffix)

    data = exported.beside[csv] if csv else exported.data
    beside = text(ORDER_SUFFIX), text(MODES_SUFFIX)
    order = order_of_texts(problem, decoded(data, ".csv"), *beside, ".csv")
    return {"order": rows_of(order)}


RUNTIME: Final = Runtime(
    "torch",
    "torch",
    TESTED,
    "schedule.csv",
    lambda _, *given: export_torch_csv(*given),
    read_torch,
    takes=("exact", "remark", "version"),
    in_turn="register a function for OVERLAP_F_B: torch runs the two ops of a pair in turn",
    any_placement=True,
    modes=None,
    built_in=(
        *("1f1b", "gpipe", "interleaved-1f1b", "looped-bfs"),
        *("interleaved-zb", "zb-v", "dualpipev"),
    ),
)


def framework(
    name: str,
    title: str,
    release: str,
    file: str,
    write: WriteFragments,
    read: ReadFragments,
    cut: Callable[[Problem, Options], Cut],
) -> Runtime:
    """Return the record of a framework that runs torch's CSV and places stages by a name.

    ``write`` makes its files by suffix, its own first, and says what is to be known. ``read`` reads
    them, each for itself. ``cut`` refuses stages that it cannot have.
    """
    return replace(
        RUNTIME,
        name=name,
        title=title,
        release=release,
        file=file,
        write=partial(export_framework, write),
        read=partial(read_framework, read),
        refuse=cut,
        takes=("layers", "checkpointing", *RUNTIME.takes),
        any_placement=False,
        one_rank=False,
        modes=(),
        one_switch=True,
        takes_layers=True,
    )


def export_framework(
    write: WriteFragments,
    runtime: Runtime,
    problem: Problem,
    schedule: Schedule,
    options: Options,
) -> Exported:
    """Return a framework's configuration, with the CSV and its hazards beside it.

    Each file is for a version of the framework that the notes name, and those run with different
    releases of torch: the hazards are of all.
    """
    runtime.require_of(problem, schedule)
    split = split_in(problem, adapt(problem, schedule, exact=options.exact).schedule)
    files, notes_of = write(problem, options, split)
    first, *others = files.items()
    order = export_torch_csv(problem, schedule, options, RELEASES)
    beside = {suffix: text.encode() for suffix, text in others} | {".csv": order.data}
    told = (*order.notes, *notes_of, *_set_for(problem, options, split))
    means = {
        **order.means,
        "csv": options.csv,
        "microbatches": problem.routes[0].microbatches,
        "placement": [problem.stages[stage].device for stage in problem.routes[0].stages],
        "layers": options.layers_of(problem),
    }
    beside |= order.beside
    return Exported(first[1].encode(), beside, told, order.changed, means=means)


class Fragment(NamedTuple):
    """What a framework's configuration says of the pipeline; ``parts``: modules of every stage."""

    ranks: int
    schedule: str
    csv: str
    microbatch_size: int
    batch: int
    parts: list[list[str]] | None


def read_framework(
    fragments: ReadFragments,
    _: Runtime,
    problem: Problem,
    exported: Exported,
    options: Options,
) -> Meaning:
    """Read a framework's configurations and the CSV: all say the same, stages lie by its rule.

    A class for single stages makes one per rank, others two, unless modules are listed.
    """
    meanings = []
    for one in fragments(exported):
        single = one.schedule == "PipelineScheduleSingle"
        stages = one.ranks * (2 - single) if one.parts is None else len(one.parts)
        v_shape = one.schedule == "ZBVZeroBubble"
        chunks, rest = divmod(stages, one.ranks)
        require(
            not rest
            and (chunks == 1) == single
            and (not v_shape or chunks == 2)
            and one.batch % one.microbatch_size == 0,
            "it cannot place or feed these stages",
            value=str(one),
        )
        place = Geometry("vee", one.ranks) if v_shape else Geometry("loop", one.ranks, chunks)
        found = {
            "csv": one.csv,
            "microbatches": one.batch // one.microbatch_size,
            "placement": [*place.homes],
            "layers": None if one.parts is None else layout_of_module_names(one.parts).counts,
        }
        meanings.append(found)
    require(
        all(other == meanings[0] for other in meanings),
        "its files do not say the same",
        value=str(meanings),
    )
    return meanings[0] | dict(read_torch(_, problem, exported, options, ".csv"))


def _set_for(problem: Problem, options: Options, split: SplitBackwards) -> Iterator[str]:
    """What a framework's fragment sets besides the schedule, or leaves to the framework."""
    each, m = options.batch, problem.routes[0].microbatches
    size = "one sequence" if each == 1 else f"{each} sequences"
    yield f"a microbatch is set to {size}, {m * each} to the local batch: change both together"
    if split.any:
        yield (
            "activation checkpointing is switched off there, because backwards are split: leave "
            "torch.compile off too"
        )
        yield "FSDP is told not to reshard after forwards: split backwards would lose gradients"
    if (layers := options.layers_of(problem)) is not None:
        yield told_of(layers)
    else:
        yield (
            "without `layers` the framework cuts the model itself: measured stages may be others"
        )
