"""What Megatron-LM takes: a layout or a hybrid model's pattern, and which order of its own.

Megatron-LM runs orders of its own, 1F1B, interleaved 1F1B in groups of a size, or that in pairs; it
has no way to load another one. An order that is one of these, whatever found it, is switched on.
Its layout lists what every stage holds, stage by stage along the model, parted by ``|``: ``E`` the
embedding, ``t`` a transformer layer, ``L`` the loss. Stage s lies on rank s mod p. A hybrid model
has a pattern instead (:mod:`pipesat.layers.megatron`). Offloading of a schedule is set too.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple

from pipesat.core.amounts import bytes_of
from pipesat.core.errors import NotApplicable, require, require_applicable
from pipesat.layers.layout import MegatronLayout, parse_layout
from pipesat.layers.megatron import (
    CORE_VERSION,
    GROUP_SIZE,
    OVERLAP,
    OVERLAP_WANTS,
    checked,
    cut_pattern,
    group_option,
    recompute_options,
    refusal,
    size_options,
)
from pipesat.problem.ops import members, with_ops
from pipesat.problem.problem import Problem
from pipesat.problem.rules import copied_amount
from pipesat.runtimes.options import Options, loader_for, told_of
from pipesat.runtimes.reading import Meaning, ops_of
from pipesat.runtimes.runtime import Runtime
from pipesat.runtimes.torch.adapt import each
from pipesat.schedule.microbatch_order import microbatch_order, relabelled
from pipesat.schedule.schedule import Exported, Order, Schedule
from pipesat.schedule.summary import over_text

_RANKS: Final = "--pipeline-model-parallel-size"
_LAYOUT: Final = "--pipeline-model-parallel-layout"
_PATTERN: Final = "--hybrid-layer-pattern"
_OFFLOAD: Final = (
    "--fine-grained-activation-offloading",
    "--activation-offload-fraction",
    "--delta-offload-bytes-across-pp-ranks",
)
_RECOMPUTE: Final = tuple(option.partition("=")[0] for option in recompute_options())
_SIZES: Final = tuple(option.partition("=")[0] for option in size_options(2, 2))
_KNOWN: Final = {_RANKS, _LAYOUT, _PATTERN, GROUP_SIZE, *OVERLAP, *_OFFLOAD, *_RECOMPUTE, *_SIZES}


NAME: Final = "interleaved-1f1b"
OVERLAPPED: Final = "interleaved-overlapped"


class Own(NamedTuple):
    """A schedule that Megatron-LM has itself, by our name; ``group``: of interleaved ones."""

    name: str
    group: int | None = None

    def order(self, problem: Problem) -> Order | None:
        """Return what it runs on so many microbatches, in the order handed out; ``None``: none."""
        from pipesat.heuristics import BASELINES  # numpy, which no help needs
        from pipesat.heuristics.interleaved import IN_GROUPS

        with contextlib.suppress(NotApplicable):
            if self.group is None:
                return BASELINES[self.name](problem).order
            return IN_GROUPS[self.name](problem, group=self.group).order
        return None

    @property
    def words(self) -> str:
        """Its name, and its groups."""
        return self.name if self.group is None else f"{self.name}, groups of {self.group}"

    def options(self, ranks: int) -> list[str]:
        """The options that switch it on; groups of one microbatch per rank are the default."""
        group = [] if self.group in (None, ranks) else [group_option(self.group or 0)]
        return [*group, *(OVERLAP if self.name == OVERLAPPED else [])]


def own_of(problem: Problem, schedule: Schedule) -> Own | None:
    """Return the schedule of Megatron-LM's whose order this is, whatever found it, if there is one.

    Microbatches may be handed out in another order: the first stage's.
    """
    route, first = problem.routes[0], problem.routes[0].stages[0]
    row = ops_of(schedule.order)[problem.stages[first].device]
    here = [op for op in row if op.kind == "F"]
    entering = [op.microbatch for op in here if op.stage == first]
    group = next((n for n, op in enumerate(here) if op.stage != first), 0)
    names = [Own("1f1b")] if not group else [Own(NAME, group), Own(OVERLAPPED, group)]
    wanted = ops_of(each(schedule.order, lambda i: [with_ops(i, lambda op: op._replace(mode=0))]))
    if len(entering) != route.microbatches:
        return None
    for own in names:
        order = own.order(problem)
        if order is not None and ops_of(relabelled(problem, order, [entering])) == wanted:
            return own
    return None


def _notes(problem: Problem, schedule: Schedule, own: Own | None) -> Iterator[str]:
    """Yield what is not carried over, and the guard of Megatron-LM's that stops the run, if any."""
    p, m = len(problem.devices), problem.routes[0].microbatches
    refused = None if own else refusal(p, len(problem.stages) // p, m)
    default = "1f1b" if len(problem.stages) == p else "interleaved-1f1b"
    if own is None:
        yield (
            "Only the placement is carried over, NOT the order: Megatron-LM runs its own 1F1B "
            "(interleaved with several stages per rank) with whole backwards. The schedule's "
            "makespan does not hold there"
            + ("." if refused else f"; `pipesat show PROBLEM {default}` says what does.")
        )
        from pipesat.heuristics import BASELINES  # numpy, which no help needs

        with contextlib.suppress(NotApplicable):
            if not refused and (over := over_text(problem, BASELINES[default](problem))):
                yield f"WARNING: {default} does not fit into memory: {over}"
    else:
        yield f"Megatron-LM runs this order itself: {own.words}"
        order = microbatch_order(problem, schedule)[0]
        if problem.has_lists and order != sorted(order):
            yield (
                "Microbatches differ, and no option has their order: hand them out as the file "
                "says that is written with `--to order`"
            )
        if own.name == OVERLAPPED:
            yield OVERLAP_WANTS
    yield (
        f"The number of microbatches, {m}, is not carried over{' either' if own is None else ''}: "
        "it follows from --global-batch-size and --micro-batch-size."
    )
    if any(schedule.copies):
        yield (
            "--offload-modules names what is offloaded: those that the memory modes count. Of the "
            "first microbatch, a layer of each stays"
        )
    if refused:
        yield f"WARNING: {refused} (megatron-core {CORE_VERSION})."


def export_megatron(_: Runtime, problem: Problem, schedule: Schedule, options: Options) -> Exported:
    """Return the command line arguments, one per line; an order that is not its own is not there.

    Raises
    ------
    NotApplicable
        If it cannot place the stages, or refuses the groups of an order that is else its own.
    """
    require_applicable(
        len(problem.routes) == 1,
        f"Megatron-LM runs one route, this problem has {len(problem.routes)}",
    )
    loader, ranks = loader_for(problem), len(problem.devices)
    require_applicable(
        loader.schedule_name in ("PipelineScheduleSingle", "PipelineScheduleMulti"),
        "Megatron-LM places stages in a loop (stage s on rank s mod p, equally many per rank), "
        "this problem does not",
    )
    require_applicable(
        ranks > 1 or len(problem.stages) == 1,
        "Megatron-LM runs several stages per rank on two ranks or more only",
    )
    own, m = own_of(problem, schedule), problem.routes[0].microbatches
    if own and (why := refusal(ranks, len(problem.stages) // ranks, m, own.group)):
        raise NotApplicable(f"{why} (megatron-core {CORE_VERSION})")
    option, layers = _layout(problem, options)
    lines = (
        f"{_RANKS}={ranks}",
        option,
        *(own.options(ranks) if own else ()),
        *options.flags,
        *offload_options(problem, schedule),
    )
    text = "".join(f"{line}\n" for line in lines)
    flags = [line for line in lines[2:] if not line.startswith("#")]
    means: dict[str, Any] = {"ranks": ranks, "layers": layers, "flags": flags}
    if own is not None:
        means["order"] = ops_of(own.order(problem) or ())
    told = () if options.pattern else (told_of(layers),)
    return Exported(text.encode(), notes=(*_notes(problem, schedule, own), *told), means=means)


def read_megatron(runtime: Runtime, problem: Problem, exported: Exported, _: Options) -> Meaning:
    """Read the options as Megatron-LM does: its guards, its layouts and its order."""
    lines = [line for line in exported.data.decode().splitlines() if not line.startswith("#")]
    said: dict[str, str] = {}
    for line in lines:
        (word,) = shlex.split(line)
        name, value = word.partition("=")[::2]
        require(
            name not in said and name in _KNOWN,
            f"expected an option of {runtime.title}, once",
            value=name,
        )
        said[name] = value
    ranks, m = int(said[_RANKS]), problem.routes[0].microbatches
    if pattern := said.get(_PATTERN):
        layers = _symbols(checked(pattern))
    else:
        layers = parse_layout(said[_LAYOUT], devices=ranks).counts
    chunks, rest = divmod(len(layers), ranks)
    group = int(said[GROUP_SIZE]) if GROUP_SIZE in said else None
    why = None if group is None else refusal(ranks, chunks, m, group)
    require(not rest and not why, why or "expected a multiple of the ranks", value=len(layers))
    overlaps = [name for name in OVERLAP if name in said]
    require(
        not overlaps or (len(overlaps) >= len(OVERLAP) and _RECOMPUTE[0] not in said),
        "expected both of its options, and nothing recomputed",
        value=OVERLAP[0],
    )
    name = "1f1b" if chunks == 1 else OVERLAPPED if overlaps else NAME
    order = Own(name, None if chunks == 1 else group or ranks).order(problem)
    return {
        "ranks": ranks,
        "layers": layers,
        "flags": lines[2:],
        "order": None if order is None else ops_of(order),
    }


def _layout(problem: Problem, options: Options) -> tuple[str, tuple[int, ...]]:
    """Return the option that says every stage's layers, quoted for a shell, and their numbers."""
    layers = options.layers_of(problem)
    if options.pattern is not None:
        pattern = cut_pattern(options.pattern, len(problem.stages), layers)
        return f"{_PATTERN}={shlex.quote(pattern)}", _symbols(pattern)
    if layers is None:
        raise NotApplicable(
            "the layout says how many layers each stage has: give `layers`, or let pipesat advise "
            "--for megatron choose them"
        )
    stages = ["t" * count for count in layers]
    stages[0] = "E" + stages[0]
    stages[-1] += "L"
    text = options.layout or MegatronLayout(tuple(stages)).text
    return f"{_LAYOUT}={shlex.quote(text)}", layers


def _symbols(pattern: str) -> tuple[int, ...]:
    """How many symbols each stage of a hybrid model has, without MTP layers."""
    return tuple(map(len, pattern.partition("/")[0].split("|")))


def offload_options(problem: Problem, schedule: Schedule) -> list[str]:
    """Return the options that offload what a schedule does; none if it offloads nothing.

    Megatron-LM (d98e8a64, fine_grained_activation_offload.py) offloads the share
    ``activation_offload_fraction`` of every microbatch of rank r, but all of the first ones stays
    until ``r * delta_offload_bytes_across_pp_ranks`` do: later ranks have fewer in flight. Share 1
    is what the stage's largest mode offloads.
    """
    if not schedule.modes:
        return []
    route = problem.routes[0].stages
    of_ranks = [_offloaded(problem, schedule, stage) for stage in route]  # refuses all others first
    unit = bytes_of(problem.memory_unit)
    if unit is None or len(problem.stages) > len(problem.devices):
        raise NotApplicable(
            "Megatron-LM's offloading is set in bytes for one stage per rank: here "
            + ("memory is in no unit of bytes" if unit is None else "ranks have several stages")
        )
    shares, exactly, least = set[Fraction](), set[Fraction](), Fraction(0)
    for rank, moved in enumerate(of_ranks):
        first = next((n for n, (freed, _) in enumerate(moved) if freed), len(moved))
        stays = sum(unit * most for _, most in moved[:first])
        shares |= {Fraction(freed, most) for freed, most in moved[first:]}
        if rank and first == len(moved):
            least = max(least, Fraction(stays, rank))
        elif rank or stays:
            exactly.add(Fraction(stays, rank) if rank else Fraction(-1))
    delta = max(exactly, default=least)
    require_applicable(
        len(shares) == 1 and len(exactly) <= 1 and delta >= least,
        "Megatron-LM offloads one share of every microbatch, but keeps the first ones: none on "
        "rank 0, r times rank 1's bytes on rank r. This schedule does otherwise",
    )
    return [
        _OFFLOAD[0],
        f"{_OFFLOAD[1]}={float(*shares):g}",
        f"{_OFFLOAD[2]}={int(delta)}",
    ]


def _offloaded(problem: Problem, schedule: Schedule, stage: int) -> list[tuple[int, int]]:
    """Return what a stage's microbatches set free by copies, in turn, and what they could most."""
    found = []
    for item in schedule.order[problem.stages[stage].device]:
        for op in (op for op in members(item) if op.stage == stage and op.kind == "F"):
            ways = [op._replace(mode=1 + n) for n in range(len(problem.stages[stage].modes))]
            freed = copied_amount(problem, op)
            if op.mode and not freed:
                raise NotApplicable(
                    f"{op} is to be computed again: Megatron-LM recomputes by options of its own, "
                    "the same for every microbatch"
                )
            found.append((freed, max((copied_amount(problem, way) for way in ways), default=0)))
    return found


RUNTIME: Final = Runtime(
    "megatron",
    "Megatron-LM",
    CORE_VERSION,
    "megatron.txt",
    export_megatron,
    read_megatron,
    takes=("layers", "pattern", "flags"),
    any_order=False,
    takes_layers=True,
    built_in=("1f1b", NAME, OVERLAPPED),
)
