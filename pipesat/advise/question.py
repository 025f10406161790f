"""The question: layers to cut, shapes to cut them for, and what a candidate may choose.

``plan`` asks for the best candidate of some shapes, ``advise`` for the best schedule of a model
under a runtime's rules. Both make candidates here: :meth:`Question.candidate` is the only place
that turns a cut into a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Final

from pipesat.advise.candidates import Candidate, Flags, where_needed
from pipesat.advise.cut_terms import variants
from pipesat.advise.splits import for_runtime, shapes_to_try
from pipesat.core.amounts import Rounding, memory_text, rounded, rounded_up, time_text
from pipesat.core.errors import require
from pipesat.core.settings import OneRoutePlacement, RecomputeChoice, Runtime
from pipesat.layers.devices import Recompute
from pipesat.layers.layer import Layer, Layers
from pipesat.layers.megatron import first_recomputed
from pipesat.layers.pipeline import Pipeline
from pipesat.layers.rules import neighbours
from pipesat.layers.stages import problem_of_split
from pipesat.problem.geometry import CHUNKS
from pipesat.problem.problem import Mode, Offload, Problem
from pipesat.problem.problem_checks import changed
from pipesat.runtimes import RUNTIMES
from pipesat.runtimes.runtime import Runtime as Record
from pipesat.schedule.schedule import Objective

_MOST_OPS_OF_A_CHAIN: Final = 500_000
"""Of a chain: a schedule of more takes about as long to build and time as an answer may."""
OFFLOAD: Final = "offload"
"""Name of the memory mode in which a stage copies activations to the host."""


@dataclass(frozen=True, eq=False)
class Question:
    """Layers, devices and rules; every row of the answer is a schedule of these.

    Attributes
    ----------
    layers
        As they are given; :attr:`own` are those that problems and bounds are made of.
    pipeline
        Devices, microbatches, memory, links and pairs; its placement says nothing. The capacity is
        without :attr:`reserve`, so a schedule has one peak wherever it is shown.
    shapes
        What is searched.
    runtime
        Whose rules orders obey; ``None``: any order.
    reserve
        Memory of a device that stays free.
    release
        The runtime with its release, for the answer.
    tokens
        Of a microbatch, ``None`` if unknown.
    copy_rate
        What a device copies to the host, and back, per time unit; ``None``: nothing is offloaded.
    links
        What is assumed of links, for the answer.
    known
        Every candidate that was asked for; questions that differ in what is searched share them.
    """

    layers: Layers
    pipeline: Pipeline
    shapes: tuple[Pipeline, ...] = ()
    choice: RecomputeChoice = "never"
    objective: Objective = "makespan"
    runtime: Runtime | None = None
    reserve: int = 0
    release: str | None = None
    tokens: int | None = None
    copy_rate: Fraction | None = None
    links: str = ""
    known: dict[tuple[object, ...], Candidate] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        ops = 3 * self.devices * self.microbatches
        require(
            ops <= _MOST_OPS_OF_A_CHAIN,
            f"{ops:,} ops in a chain of {self.devices} devices, "
            f"expected at most {_MOST_OPS_OF_A_CHAIN:,}",
            where="microbatches",
            value=self.microbatches,
        )

    @property
    def devices(self) -> int:
        """Pipeline ranks."""
        return self.pipeline.devices

    @property
    def microbatches(self) -> int:
        """Microbatches."""
        return self.pipeline.microbatches

    @cached_property
    def memory(self) -> int | None:
        """Capacity of the first device that has one."""
        return next((one for one in self.pipeline.capacities if one is not None), None)

    @property
    def of_device(self) -> int | None:
        """Memory of a device, what stays free included."""
        return None if self.memory is None else self.memory + self.reserve

    @property
    def overlap(self) -> tuple[int, int] | None:
        """What a pair of F and BW takes of their sum, (num, den); ``None``: nothing pairs."""
        return self.pipeline.overlap

    @property
    def record(self) -> Record:
        """What its runtime can run."""
        return RUNTIMES[self.runtime or "torch"]

    @property
    def any_order(self) -> bool:
        """Whether its runtime runs an order that it is given; else it runs its own."""
        return self.runtime is None or self.record.any_order

    @property
    def may_recompute(self) -> bool:
        """Whether recomputing could help: layers have costs for it, and memory is limited."""
        return self.memory is not None and self.layers.recomputable

    @property
    def may_offload(self) -> bool:
        """Whether offloading could help, and a rate is known."""
        return self.may_recompute and self.copy_rate is not None

    @property
    def free(self) -> bool:
        """Whether a partition leaves more than one choice of flags."""
        return self.choice == "choose" and self.layers.recomputable

    @cached_property
    def ruled(self) -> Layers:
        """The layers as the runtime runs them: the first one's backward whole, say."""
        return (
            self.layers if self.runtime is None else for_runtime(self.layers, (), self.runtime)[0]
        )

    @cached_property
    def own(self) -> Layers:
        """What bounds and proposals are made of: the variants that the choice admits, no others."""
        if self.choice == "never":
            return variants(self.ruled)[0]
        if self.choice == "always":
            whole = self.shape("chain").recompute_whole
            again = (
                x
                if x.recomputed is None
                else replace(x, costs=x.recomputed, recomputed=None, fused=x.fused or whole)
                for x in self.ruled.layers
            )
            return replace(self.ruled, layers=tuple(again))
        return self.ruled

    def shape(self, placement: OneRoutePlacement, chunks: int = CHUNKS) -> Pipeline:
        """Return the pipeline of a placement, under the runtime's rules.

        A runtime that runs orders of its own has none in a V: there, no rule holds.
        """
        shape = replace(self.pipeline, placement=placement, chunks=chunks)
        if self.runtime is None or (not self.any_order and placement == "vee"):
            return shape
        return for_runtime(self.layers, [shape], self.runtime)[1][0]

    def searched(
        self, chunks: Sequence[int] = (), choice: RecomputeChoice | None = None
    ) -> Question:
        """Return the question of a search in all placements that are possible.

        A searched order obeys no rules of a runtime that runs its own: it cannot run there.

        Raises
        ------
        BadInput
            If the layers can be cut for no placement.
        """
        asked = replace(self, choice=choice or ("choose" if self.may_recompute else "never"))
        asked = asked if self.any_order else replace(asked, runtime=None)
        shapes, _ = shapes_to_try(asked.own, asked.shape("chain"), "any", chunks)
        return replace(asked, shapes=tuple(shapes))

    def settled(self, shape: Pipeline, partition: Sequence[range], wanted: Flags = ()) -> Flags:
        """Return the flags that a partition gets if ``wanted`` are proposed.

        Stages without a variant are never said to recompute, so that equal problems have equal
        flags.
        """
        if not self.layers.recomputable or self.choice == "never":
            return ()
        if self.choice == "where-needed":
            flags = where_needed(self.layers, shape, partition)
        else:
            every = (self.choice == "always",) * len(partition)
            pairs = zip(every if any(every) else wanted or every, partition, strict=True)
            flags = tuple(flag and self.layers.may_recompute(part) for flag, part in pairs)
        return flags if any(flags) else ()

    def first(self, shape: Pipeline, partition: Sequence[range]) -> Iterator[Flags]:
        """Flags to try on a partition that comes without any."""
        if not self.own.recomputable:
            yield self.settled(shape, partition)
            return
        needed = where_needed(self.layers, shape, partition)
        yield needed
        if self.free and any(needed):
            yield ()

    def around(self, candidate: Candidate) -> Iterator[tuple[tuple[range, ...], Flags]]:
        """Yield its neighbours: one layer moved, or one stage's recomputation toggled.

        The latter only where it may be chosen.
        """
        partition, now = candidate.partition, candidate.flags
        if all(partition):
            for moved in neighbours(self.layers, partition, candidate.shape):
                yield moved, candidate.recompute
        for stage, part in enumerate(partition):
            if self.free and self.layers.may_recompute(part):
                yield partition, (*now[:stage], not now[stage], *now[stage + 1 :])

    @property
    def of_splits(self) -> tuple[Recompute, ...]:
        """How programmes that choose a partition and flags together may set the flags."""
        if not self.own.recomputable:
            return ("never",)
        return ("where_needed", "never", "always") if self.free else ("where_needed",)

    def candidate(
        self,
        shape: Pipeline,
        partition: tuple[range, ...],
        recompute: Flags = (),
        *,
        first: int | None = None,
        offload: bool = False,
    ) -> Candidate:
        """Return one way to cut, place and recompute, or to offload instead.

        The same one whenever it is asked for: all that have it share what is known of it.

        Raises
        ------
        BadInput
            If it breaks a flag or a tie, or an amount is more than a problem can state.
        """
        recompute = recompute if any(recompute) else ()
        key = shape, partition, recompute, first, offload
        if key not in self.known:
            layers = self._recomputing(partition, first)
            problem = problem_of_split(layers, partition, shape, recompute=recompute)
            if offload:
                problem = self._offloading(problem, partition)
            self.known[key] = Candidate(*key, problem, self.objective)
        return self.known[key]

    def _offloading(self, problem: Problem, partition: Sequence[range]) -> Problem:
        """Return a split's problem whose stages may copy activations to the host."""
        stages = list[dict[str, tuple[Mode, ...]]]()
        for part in partition:
            held, again = (
                sum(self.layers.layers[k].amount("held_after_F", recompute=flag) for k in part)
                for flag in (False, True)
            )
            stays = min(held, again)
            copy = ceil((held - stays) / (self.copy_rate or 1))
            mode = Mode(OFFLOAD, offload=Offload(copy, copy, stays))
            stages.append({"modes": (mode,) if held > stays else ()})
        return changed(problem, stages)

    def in_any_order(self, candidate: Candidate) -> Candidate:
        """Return its stages in all orders that the runtime runs; of Megatron-LM's, in any."""
        if self.any_order:
            return candidate
        shape = replace(candidate.shape, backward="either")
        own = candidate.partition, candidate.recompute
        offload = candidate.offload
        return self.candidate(shape, *own, first=candidate.first, offload=offload)

    def work_of(self, layer: int) -> int:
        """Compute of one microbatch in a layer, not recomputed, the least of both ways."""
        return _work(self.layers.layers[layer])

    def _recomputing(self, partition: Sequence[range], first: int | None) -> Layers:
        return self.ruled if first is None else first_recomputed(self.ruled, partition, first)

    def works_on(self, device: int, own: Candidate) -> Iterator[tuple[int, int]]:
        """Yield each layer of a device and its compute of one microbatch, as it runs there."""
        layers = self._recomputing(own.partition, own.first)
        for stage in own.shape.stages_on[device]:
            again = bool(own.recompute) and own.recompute[stage]
            whole = own.problem.stages[stage].backward == "fused"
            there = layers.at(own.shape.speeds[stage]).layers
            for k in own.partition[stage]:
                yield k, _work(there[k], again=again, whole=whole)

    def words(self, text: str) -> str:
        """Return a text with the words of its runtime: Megatron-LM says VPP 2 to a loop of 2."""
        return text if self.any_order else re.sub(r"(an? )?loop of (\d+)", r"VPP \2", text)

    @cached_property
    def work(self) -> int:
        """Compute of one microbatch in all layers."""
        return sum(map(self.work_of, range(len(self.layers))))

    def time(self, value: int, towards: Rounding = rounded) -> str:
        """Show a time in milliseconds where its unit is known; a lower limit rounded down."""
        return time_text(value, self.layers.time_unit, towards)

    def amount(
        self, value: int, towards: Rounding = rounded_up, *, within: int | None = None
    ) -> str:
        """Show memory in GiB, MiB, ... where its unit is one of bytes: a need is rounded up."""
        return memory_text(value, self.layers.memory_unit, towards, within=within)


def _work(layer: Layer, *, again: bool = False, whole: bool = False) -> int:
    """Compute of one microbatch in a layer: its backward ``whole``, else the least of both ways."""
    F, B, W, BW = (layer.amount(kind, recompute=again) for kind in ("F", "B", "W", "BW"))
    return F + (BW if whole else min(BW, B + W))
