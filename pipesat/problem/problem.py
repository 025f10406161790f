"""A problem: devices, stages, routes and delays. Pure data, immutable throughout, validated.

Problems come from :func:`pipesat.problem.problem_file.parse_problem`, which checks every value; the
document they came from is kept, because its digest ties schedules to it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple, cast

from pipesat.core.arguments import public
from pipesat.core.frozen import FrozenDict, changed, frozen
from pipesat.core.grouping import firsts, in_rows
from pipesat.core.settings import MicrobatchOrder, ModeChoice
from pipesat.problem.building import (
    Amounts,
    Comm,
    Memory,
    Microbatches,
    OverlapGiven,
    StageBackward,
    make,
    placed,
)
from pipesat.problem.ops import OpKind
from pipesat.problem.remarks import Remark
from pipesat.problem.stage import MicrobatchClass, Mode, Offload, Stage, resulting_amounts, scaled

__all__ = [
    "Device",
    "Link",
    "MicrobatchClass",
    "Mode",
    "Offload",
    "Overlap",
    "Problem",
    "Route",
    "Stage",
]


FORMAT: Final = "pipesat.problem/1"
TEXTS: Final = ("name", "time_unit", "memory_unit")
Document: TypeAlias = Mapping[str, Any]
"""What ``json.loads`` returns of a problem file."""

R = TypeVar("R")
Rest = TypeVarTuple("Rest")


@dataclass(frozen=True, slots=True)
class Device:
    """One pipeline rank.

    ``memory`` is its capacity in memory units (``None``: unlimited), ``static`` the part of it that
    is taken all the time. ``copy_channels`` is 1 if copies to and from the host share a channel.
    """

    name: str = ""
    memory: int | None = None
    static: int = 0
    copy_channels: int = 2

    @property
    def slack(self) -> int | None:
        """Memory left for activations: ``memory - static``; ``None`` if unlimited."""
        return None if self.memory is None else self.memory - self.static

    @property
    def entry(self) -> dict[str, Any]:
        """The device as an entry of ``devices`` of a problem file, without what is by default."""
        return {
            one.name: value
            for one in fields(self)
            if (value := getattr(self, one.name)) != one.default
        }


Edges: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of stages: the second one takes what the first one makes."""


@dataclass(frozen=True, slots=True)
class Route:
    """The stages that ``microbatches`` microbatches travel, one after the other or as a graph.

    Where they are a list in the problem, ``classes`` has the class of each microbatch, an index of
    ``definitions``; otherwise it is ``None``. ``graph`` has the edges of a route that is no chain
    of ``stages``. ``slices`` microbatches that follow each other are one sequence.
    """

    stages: tuple[int, ...]
    microbatches: int
    classes: tuple[int, ...] | None = None
    definitions: tuple[MicrobatchClass, ...] = ()
    graph: Edges | None = None
    slices: int = 1

    @property
    def edges(self) -> Edges:
        """Its edges, those of the chain included."""
        return tuple(pairwise(self.stages)) if self.graph is None else self.graph

    def classes_in(self, sequence: int) -> tuple[int, ...]:
        """Classes of the slices of a sequence; without slices, a sequence is a microbatch."""
        begin = sequence * self.slices
        if self.classes is None:
            return (0,) * self.slices
        return self.classes[begin : begin + self.slices]

    @property
    def class_of_each(self) -> tuple[int, ...]:
        """Class of every microbatch; 0 where they do not differ."""
        return self.classes or (0,) * self.microbatches

    @property
    def counts(self) -> dict[int, int]:
        """How many microbatches there are of each class that some are of."""
        return dict(sorted(Counter(self.class_of_each).items()))

    @property
    def class_numbers(self) -> range:
        """Numbers of its classes; one where microbatches do not differ."""
        return range(max(1, len(self.definitions)))

    @property
    def kinds(self) -> dict[tuple[int, ...], int]:
        """First sequence of each combination of classes that sequences have."""
        count = 1 if self.classes is None else self.microbatches // self.slices
        return firsts((self.classes_in(sequence), sequence) for sequence in range(count))

    @property
    def listed(self) -> int | list[dict[str, Any]]:
        """Its microbatches as a problem file has them: their number, or the list of them."""
        if self.classes is None:
            return self.microbatches
        found = list[dict[str, Any]]()
        for number, run in groupby(self.classes):
            entry, count = self.definitions[number].entry, len([*run])
            first = all(entry["name"] != one["name"] for one in found)
            found.append({"name": entry["name"], "count": count} | (entry if first else {}))
        return found

    @property
    def entry(self) -> dict[str, Any]:
        """The route as an entry of ``routes`` of a problem file."""
        entry: dict[str, Any] = {"stages": [*self.stages], "microbatches": self.listed}
        if self.graph is not None:
            entry["edges"] = [[*edge] for edge in self.graph]
        return entry | ({"slices": self.slices} if self.slices > 1 else {})


@dataclass(frozen=True, slots=True)
class Link:
    """Delays of an edge between two stages, forward (F) and backward (B), in time units."""

    F: int
    B: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Which two ops of a device may run as one, and how long they take then.

    ``times`` and ``factors`` have the listed pairs: two (stage, kind), in the order in which files
    write them, and the time of the two together, whatever they take alone; or ``(num, den)``, with
    which they take max(1, ceil((a + b) num / den)) of what they take alone. ``factor`` is another
    ``(num, den)``: any F and BW of a device that are not listed may pair, in max(F, BW,
    ceil((F + BW) num / den)). ``None``: what is not listed may not pair.
    :func:`pipesat.problem.rules.pair_time` answers for two ops.
    """

    factor: tuple[int, int] | None
    times: Mapping[tuple[OpKind, OpKind], int] = field(default_factory=dict)
    factors: Mapping[tuple[OpKind, OpKind], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in ("times", "factors"):
            object.__setattr__(self, part, frozen(getattr(self, part)))

    @property
    def listed(self) -> tuple[tuple[OpKind, OpKind], ...]:
        """All combinations that are listed, by time or by factor, as their entries have them."""
        return (*self.times, *self.factors)

    @property
    def document(self) -> dict[str, Any]:
        """``overlap`` of the problem file that says this."""
        said: list[tuple[str, Any]] = [("time", time) for time in self.times.values()]
        said += [("factor", [*factor]) for factor in self.factors.values()]
        found = [
            {"ops": [f"{stage}{kind}" for stage, kind in two], key: value}
            for two, (key, value) in zip(self.listed, said, strict=True)
        ]
        factor = {} if self.factor is None else {"FB": [*self.factor]}
        return factor | ({"pairs": found} if found else {})

    def entry(self, a: OpKind, b: OpKind) -> tuple[OpKind, OpKind] | None:
        """Return the listed combination of two kinds, in any order; ``None`` if there is none."""
        both = ((a, b), (b, a))
        return next((two for two in both if two in self.times or two in self.factors), None)

    def time(self, a: OpKind, b: OpKind, one: int, other: int) -> int | None:
        """Time of a pair of these kinds that take ``one`` and ``other`` alone; ``None``: no pair.

        It does not fall with either.
        """
        for two in ((a, b), (b, a)):
            if two in self.times:
                return self.times[two]
            if two in self.factors:
                num, den = self.factors[two]
                return max(1, -(-(one + other) * num // den))
        if self.factor is None or {a[1], b[1]} != {"F", "BW"}:
            return None
        num, den = self.factor
        return max(one, other, -(-(one + other) * num // den))


@dataclass(frozen=True, repr=False)
class Problem:
    """A pipeline to schedule. ``Problem.chain``, ``loop``, ``vee`` and ``two_routes`` make one.

    ``links[(s, t)]`` has the delays of every edge from ``s`` to ``t`` whose stages lie on
    different devices; stages on one device hand over without delay. ``overlap`` says which ops
    may run as pairs; ``None``: none may. ``estimate`` says where the costs are from if no one has
    measured them.

    ``stages`` and ``links`` are as stated. What holds of one microbatch, of its class and in its
    mode, :meth:`amounts` and :meth:`link` say; code whose argument needs equal microbatches asks
    :attr:`alike` or takes :func:`pipesat.problem.plain_problems.least_problem`.

    ``read_as`` is the document of the file that the problem, or the one that it was changed from,
    was read from, and what that says: :attr:`document` writes what differs into it.
    """

    devices: tuple[Device, ...]
    stages: tuple[Stage, ...]
    routes: tuple[Route, ...]
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    overlap: Overlap | None = None
    name: str = ""
    time_unit: str = ""
    memory_unit: str = ""
    order: MicrobatchOrder = "free"
    mode_choice: ModeChoice = "microbatch"
    estimate: str = ""
    read_as: tuple[Document, Problem] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", frozen(self.links))

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: self.__dict__[one.name] for one in fields(self)}  # no answers so far

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __deepcopy__(self, memo: object) -> Problem:
        return self

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        counts = " + ".join(str(route.microbatches) for route in self.routes)
        counted = (f"{len(self.devices)} devices", f"{len(self.stages)} stages")
        sliced = sorted({route.slices for route in self.routes if route.slices > 1})
        more = [f"{number} slices a sequence" for number in sliced]
        return f"<Problem{name}: {', '.join((*counted, f'{counts} microbatches', *more))}>"

    @classmethod
    @placed(make, "chain")
    def chain(cls) -> Any:
        """Make a problem with one stage per device, in a row."""

    @classmethod
    @placed(make, "loop")
    def loop(cls) -> Any:
        """Make a problem with ``chunks`` stages per device, stage s on device s mod p: interleaved.

        Costs are per stage, of which there are ``chunks`` times as many as devices.
        """

    @classmethod
    @placed(make, "vee")
    def vee(cls) -> Any:
        """Make a problem with two stages per device, through the devices and back: ZB-V, DualPipeV.

        Costs are per stage, of which there are twice as many as devices.
        """

    @classmethod
    @placed(make, "bidirectional")
    def two_routes(cls) -> Any:
        """Make a problem with two replicas of every stage, one per direction: DualPipe, Chimera.

        Costs are per stage, of which there are as many as devices. Every device holds two stages:
        ``static`` has to say so. Of an odd number of microbatches the first direction has one more;
        two entries in a list are one per direction, each a number or the list of a problem file.
        """

    @classmethod
    @public
    def from_stages(
        cls,
        stages: Sequence[Any],
        microbatches: Microbatches | None = None,
        *,
        devices: Microbatches | None = None,
        routes: Sequence[Mapping[str, Any]] | None = None,
        comm: int | Mapping[str, Any] = 0,
        overlap: OverlapGiven = None,
        order: MicrobatchOrder | None = None,
        mode_choice: ModeChoice | None = None,
        edges: Sequence[Sequence[int]] | None = None,
        slices: int | None = None,
        name: str = "",
        time_unit: str = "",
        memory_unit: str = "",
    ) -> Problem:
        """Make a problem of stages that lie anywhere.

        Parameters
        ----------
        stages
            Each a :class:`pipesat.Stage`, or an entry of ``stages`` of a problem file.
        microbatches
            How many, or a list; ``None`` if ``routes`` say it.
        devices
            Each a :class:`pipesat.Device`, or an entry of ``devices``; a number of them without
            limits; ``None``: as many as the stages name.
        routes
            Entries of ``routes``: ``{"stages": [0, 1], "microbatches": 8}``, maybe with ``edges``
            and ``slices``; ``None``: one route through all stages in order.
        edges
            Of the one route: ``(src, dst)`` of each edge, from an earlier to a later stage;
            ``None``: every stage feeds the next.
        slices
            Of the one route: how many microbatches that follow each other are one sequence.
        comm
            Delay of every link, or ``comm`` of a problem file.
        overlap, order, mode_choice, name, time_unit, memory_unit
            As in :meth:`chain`.

        Raises
        ------
        BadInput
            As for a problem file.
        """
        from pipesat.problem.making import from_parts

        return from_parts(locals())

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Problem:
        """Make a problem of the document of a problem file (what ``json.loads`` returns).

        Raises
        ------
        BadInput
            As for a problem file.
        """
        from pipesat.problem.problem_file import parse_problem
        from pipesat.problem.stated import warned

        return warned(parse_problem(document))

    @classmethod
    @public
    def read(cls, path: str | Path) -> Problem:
        """Read a problem file.

        Raises
        ------
        BadInput
            With the file, the path of the value, the value and what would be right.
        """
        from pipesat.problem.problem_file import read_problem
        from pipesat.problem.stated import warned

        return warned(read_problem(path))

    @public
    def write(self, path: str | Path) -> None:
        """Write the problem file that says this.

        Raises
        ------
        BadInput
            If the file cannot be written.
        """
        from pipesat.problem.problem_file import write_problem

        write_problem(path, self)

    def _repr_html_(self) -> str:
        from pipesat.problem.stage_table import html_of_problem

        return html_of_problem(self)

    @public
    def with_memory(self, memory: Memory) -> Problem:
        """Return the same problem with other capacities, static memory included.

        Parameters
        ----------
        memory
            One for all devices or one each, also as ``"40GiB"``; ``None``: unlimited;
            ``"1f1b*0.75"``: that share of 1F1B's peak, on top of each device's static memory.
        """
        return self._restated(memory=memory)

    @public
    def with_static(self, static: Amounts) -> Problem:
        """Return the same problem with other static memory: one for all devices or one each."""
        return self._restated(static=static)

    @public
    def with_microbatches(
        self, microbatches: Microbatches, order: MicrobatchOrder | None = None
    ) -> Problem:
        """Return the same problem with other microbatches.

        Parameters
        ----------
        microbatches
            How many, of all routes together, or the list of a problem file. On several routes, a
            list has one entry per route, each a number or a list.
        order
            ``"given"``, ``"same"`` or ``"free"``, for a list alone.
        """
        return self._restated(microbatches=microbatches, order=order)

    @public
    def with_comm(self, comm: Comm) -> Problem:
        """Return the same problem with other delays.

        Parameters
        ----------
        comm
            One for every link, one per link between neighbouring devices (whichever way and route),
            or ``comm`` of a problem file.
        """
        return self._restated(comm=comm)

    @public
    def with_backward(self, backward: StageBackward) -> Problem:
        """Return the same problem whose stages run ``"split"``, ``"fused"`` or ``"either"``.

        With ``"none"`` all run F alone.
        """
        return self._restated(backward=backward)

    def with_overlap(self, overlap: OverlapGiven) -> Problem:
        """Return the same problem with other overlapped pairs; ``None``: without any."""
        return self._restated(overlap=overlap)

    @public
    def with_name(self, name: str) -> Problem:
        """Return the same problem under another name."""
        return self._restated(name=name)

    def _restated(self, **given: Any) -> Problem:
        from pipesat.problem.making import restated

        return restated(self, **given)

    @cached_property
    def document(self) -> Document:
        """Document of the problem file that says this, in the words of the one that was read."""
        if self.read_as is None:
            return cast("Document", frozen(self._document()))
        read, said = self.read_as
        routes = "routes" in read
        document = changed(read, said._document(routes), self._document(routes))
        if not self.has_lists:
            document.pop("order", None)  # it may stand beside lists alone
        return cast("Document", frozen(document))

    def _document(self, routes: bool = False) -> dict[str, Any]:
        """Write what is not by default; ``routes``: also where one passes all stages in order."""
        stated = ("estimate",) if self.estimate else ()
        document: dict[str, Any] = {key: getattr(self, key) for key in stated}
        document["format"] = FORMAT
        document |= {key: text for key in TEXTS if (text := getattr(self, key))}
        said = [(r.stages, r.graph, r.slices) for r in self.routes]
        routes = routes or said != [((*range(len(self.stages)),), None, 1)]
        if not routes:
            document["microbatches"] = self.routes[0].listed
        document["devices"] = [device.entry for device in self.devices]
        document["stages"] = [stage.entry for stage in self.stages]
        delays = {*self.links.values()}
        most = max((max(link.F, link.B) for link in delays), default=0)
        document["comm"] = {"default": most}
        if delays - {Link(most, most)}:
            document["comm"]["edges"] = [
                {"src": src, "dst": dst, "F": link.F, "B": link.B}
                for (src, dst), link in self.links.items()
            ]
        if self.overlap is not None:
            document["overlap"] = self.overlap.document
        if self.has_lists and self.order != "free":
            document["order"] = self.order
        if self.mode_choice != "microbatch":
            document["mode_choice"] = self.mode_choice
        if routes:
            document["routes"] = [route.entry for route in self.routes]
        return document

    @cached_property
    def sha256(self) -> str:
        """Digest of the canonical form: sorted keys, no spaces, UTF-8, defaults not filled in."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def places_of(self, route: int) -> dict[str, str]:
        """Where the document defines the classes of a route's list: path of each name's entry."""
        several = "routes" in self.document
        holder = self.document["routes"][route] if several else self.document
        path = f"routes[{route}].microbatches" if several else "microbatches"
        listed = reversed([*enumerate(holder["microbatches"])])  # the first of a name comes last
        return {entry["name"]: f"{path}[{at}]" for at, entry in listed}

    @cached_property
    def route_of(self) -> tuple[int, ...]:
        """Route of each stage."""
        owner = dict.fromkeys(range(len(self.stages)), 0)
        for number, route in enumerate(self.routes):
            owner.update(dict.fromkeys(route.stages, number))
        return tuple(owner[stage] for stage in range(len(self.stages)))

    def route(self, stage: int) -> Route:
        """Return the route of a stage."""
        return self.routes[self.route_of[stage]]

    @cached_property
    def microbatches(self) -> tuple[int, ...]:
        """Number of microbatches that pass each stage."""
        return tuple(self.routes[route].microbatches for route in self.route_of)

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """Stages with an edge to each stage."""
        turned = ((b, a) for route in self.routes for a, b in route.edges)
        return in_rows(len(self.stages), turned)

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Stages that each stage has an edge to."""
        return in_rows(len(self.stages), (edge for route in self.routes for edge in route.edges))

    @cached_property
    def previous(self) -> tuple[int | None, ...]:
        """Stage before each stage on its route; ``None`` for the first. For chains alone."""
        return tuple(_only(stages) for stages in self.before)

    @cached_property
    def next(self) -> tuple[int | None, ...]:
        """Stage after each stage on its route; ``None`` for the last. For chains alone."""
        return tuple(_only(stages) for stages in self.after)

    @cached_property
    def chains_only(self) -> bool:
        """Whether every route is a chain of stages with backwards, and no sequence has slices."""
        ordinary = all(route.graph is None and route.slices == 1 for route in self.routes)
        return ordinary and all(stage.has_backward for stage in self.stages)

    @cached_property
    def slices_of(self) -> tuple[int, ...]:
        """How many microbatches that follow each other are one sequence, by stage."""
        return tuple(self.routes[route].slices for route in self.route_of)

    @cached_property
    def place_of(self) -> tuple[int, ...]:
        """Place of each stage on its route, counted from 0."""
        places = {stage: at for route in self.routes for at, stage in enumerate(route.stages)}
        return tuple(places.get(stage, 0) for stage in range(len(self.stages)))

    @cached_property
    def stages_on(self) -> tuple[tuple[int, ...], ...]:
        """Stages of each device, in route order (routes one after the other)."""
        stages = (stage for route in self.routes for stage in route.stages)
        return in_rows(len(self.devices), ((self.stages[s].device, s) for s in stages))

    @property
    def busy(self) -> dict[int, tuple[int, ...]]:
        """Devices that have stages, with these."""
        return {device: stages for device, stages in enumerate(self.stages_on) if stages}

    @cached_property
    def answers(self) -> dict[tuple[Hashable, ...], Any]:
        """What :mod:`pipesat.problem.rules` and bounds have worked out of this problem so far."""
        return {}

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What it states and perhaps does not mean: ``path``, ``value`` and ``text`` of each."""
        from pipesat.problem.stated import remarks_of

        return remarks_of(self)

    @cached_property
    def has_modes(self) -> bool:
        """Whether some stage has memory modes."""
        return any(stage.modes for stage in self.stages)

    @property
    def mode_names(self) -> list[str]:
        """Names of all modes but keep, in the order in which they are first stated."""
        return list(dict.fromkeys(mode.name for stage in self.stages for mode in stage.modes))

    @cached_property
    def within_memory(self) -> str:
        """The condition of what is said of all schedules; empty if nothing limits memory."""
        limited = any(device.memory is not None for device in self.devices)
        return " within memory" if limited else ""

    @cached_property
    def has_lists(self) -> bool:
        """Whether the microbatches of some route are a list, be they equal or not."""
        return any(route.classes is not None for route in self.routes)

    @cached_property
    def has_copies(self) -> bool:
        """Whether some stage has a mode that offloads."""
        return any(mode.offload for stage in self.stages for mode in stage.modes)

    @cached_property
    def plain(self) -> bool:
        """Whether ``stages`` and ``links`` say it all, for every microbatch."""
        return not (self.has_lists or self.has_modes)

    @cached_property
    def alike(self) -> bool:
        """Whether all microbatches of a stage have the same amounts, and there are no modes."""
        return not self.has_modes and all(self._all_equal(route) for route in self.routes)

    def _all_equal(self, route: Route) -> bool:
        numbers = {of_class.effect: number for number, of_class in enumerate(route.definitions)}
        first, *others = numbers.values() or (0,)
        return all(
            self.resulting(stage, 0, first) == self.resulting(stage, 0, other)
            for other, stage in product(others, route.stages)
        ) and all(
            self.link_of_class(here, first, after) == self.link_of_class(here, other, after)
            for other, (here, after) in product(others, route.edges)
        )

    def class_of(self, stage: int, microbatch: int) -> int:
        """Class of a microbatch of a stage's route; 0 where they do not differ.

        Raises
        ------
        ValueError
            If they differ and there is no such microbatch.
        """
        classes = self.routes[self.route_of[stage]].classes
        if classes is None:
            return 0
        if microbatch >= len(classes):
            raise ValueError(f"stage {stage} has no microbatch {microbatch}")
        return classes[microbatch]

    def modes_of(self, stage: int) -> range:
        """Numbers of a stage's modes: 0 is keep, the others are ``stages[stage].modes`` + 1."""
        return range(1 + len(self.stages[stage].modes))

    def amounts(self, stage: int, microbatch: int, mode: int = 0) -> Stage:
        """Return a stage's amounts for one microbatch, of its class, in one mode (0: keep).

        Raises
        ------
        ValueError
            If there is no such mode, or microbatches differ and there is no such microbatch.
        """
        if self.plain and not mode:
            return self.stages[stage]
        return self.resulting(stage, mode, self.class_of(stage, microbatch))

    def resulting(self, stage: int, mode: int = 0, of_class: int = 0) -> Stage:
        """Return a stage's amounts in one mode for a class of its route, scaled and summed."""
        known = self._resulting.get((stage, mode, of_class))
        if known is None:
            data, definitions = self.stages[stage], self.routes[self.route_of[stage]].definitions
            if mode not in self.modes_of(stage):
                raise ValueError(f"stage {stage} has no mode {mode}")
            own = data.modes[mode - 1] if mode else None
            known = resulting_amounts(
                data, own, definitions[of_class] if definitions else None, stage
            )
            self._resulting[stage, mode, of_class] = known
        return known

    @cached_property
    def _resulting(self) -> dict[tuple[int, int, int], Stage]:
        return {}

    def link(self, stage: int, microbatch: int, after: int | None = None) -> Link | None:
        """Delays of one microbatch from a stage to ``after``; ``None`` within a device.

        Without ``after``: to the next stage of a chain.
        """
        return self.link_of_class(stage, self.class_of(stage, microbatch), after)

    def link_of_class(self, stage: int, of_class: int, after: int | None = None) -> Link | None:
        """As :meth:`link`, for a class of the stage's route."""
        after = self.next[stage] if after is None else after
        link = None if after is None else self.links.get((stage, after))
        definitions = self.routes[self.route_of[stage]].definitions
        if link is None or not definitions:
            return link
        if stated := dict(definitions[of_class].delays).get(stage):
            return Link(*stated)
        factor = definitions[of_class].comm
        return Link(scaled(link.F, factor), scaled(link.B, factor))

    @cached_property
    def chunks_on(self) -> tuple[Mapping[int, tuple[int, ...]], ...]:
        """Stages of each device by route, in route order."""
        return tuple(
            FrozenDict(
                (route, tuple(s for s in stages if self.route_of[s] == route))
                for route in dict.fromkeys(self.route_of[s] for s in stages)
            )
            for stages in self.stages_on
        )

    @cached_property
    def op_count(self) -> int:
        """Largest number of ops that a schedule can have: F, B and W of every microbatch."""
        return sum(
            m * (3 if s.may_ever_split else 1 + s.has_backward)
            for s, m in zip(self.stages, self.microbatches, strict=True)
        )

    @cached_property
    def one_stage_per_device(self) -> bool:
        """Whether every device holds exactly one stage of one route: a plain chain."""
        single = len(self.routes) == 1 and all(len(stages) == 1 for stages in self.stages_on)
        return single and self.chains_only

    def device_name(self, device: int) -> str:
        """Name of a device for messages: its own, or ``device 3``."""
        return self.devices[device].name or f"device {device}"


def _only(stages: tuple[int, ...]) -> int | None:
    if len(stages) > 1:
        raise AssertionError("a route that is a graph was taken for a chain")
    return stages[0] if stages else None


def links_between(
    homes: Sequence[int], routes: Iterable[Iterable[int]], delay: Callable[[int, int], Link]
) -> dict[tuple[int, int], Link]:
    """Return the links of consecutive stages of each route that lie on different devices.

    Parameters
    ----------
    homes
        Each stage's device.
    routes
        Of a graph, each of its edges is one.
    delay
        The link of two such stages.
    """
    hops = (hop for route in routes for hop in pairwise(route))
    return {(a, b): delay(a, b) for a, b in hops if homes[a] != homes[b]}


def once(answer: Callable[[Problem, *Rest], R]) -> Callable[[Problem, *Rest], R]:
    """Decorate a question about a problem: its answer is worked out once and kept there."""

    @wraps(answer)
    def known(problem: Problem, *rest: *Rest) -> R:
        key = (answer.__qualname__, *rest)
        if key not in problem.answers:
            problem.answers[key] = answer(problem, *rest)
        found: R = problem.answers[key]
        return found

    return known
