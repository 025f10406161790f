"""What advise is asked: layers on devices, under a memory cap, for a runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from pipesat.choose.candidates import Candidate, Flags, Space
from pipesat.choose.offload import with_offload
from pipesat.choose.splits import for_runtime, shapes_to_try
from pipesat.core.amounts import Rounding, memory_text, rounded, rounded_up, time_text
from pipesat.core.geometry import CHUNKS
from pipesat.core.problem import Problem
from pipesat.core.settings import OneRoutePlacement, Runtime
from pipesat.export import RUNTIMES
from pipesat.export.runtime import Runtime as Record
from pipesat.layers.layer import Layers
from pipesat.layers.megatron import first_recomputed
from pipesat.layers.pipeline import Delay, Pipeline, link_delay
from pipesat.layers.stages import problem_of_split


@dataclass(frozen=True)
class Question:
    """One question; every row of the answer is a schedule of these layers and devices.

    Attributes
    ----------
    memory, reserve
        Capacity of a device, ``None`` without a limit, and what stays free besides. All problems
        have this capacity, so a schedule has one peak wherever it is shown.
    latency, bandwidth
        Of every link, in the layers' units; without a bandwidth, size does not count.
    tokens
        Of a microbatch, ``None`` if unknown.
    copy_rate
        What a device copies to the host, and back, per time unit; ``None``: nothing is offloaded.
    overlap
        What a pair of F and BW takes of their sum, (num, den); ``None``: nothing pairs.
    """

    layers: Layers
    devices: int
    microbatches: int
    memory: int | None
    reserve: int
    latency: int
    bandwidth: Fraction | None
    runtime: Runtime
    tokens: int | None = None
    copy_rate: Fraction | None = None
    overlap: tuple[int, int] | None = None

    @property
    def of_device(self) -> int | None:
        """Memory of a device, what stays free included."""
        return None if self.memory is None else self.memory + self.reserve

    @property
    def record(self) -> Record:
        """What its runtime can run."""
        return RUNTIMES[self.runtime]

    @property
    def any_order(self) -> bool:
        """Whether its runtime runs an order that it is given; else it runs its own."""
        return self.record.any_order

    @property
    def may_offload(self) -> bool:
        """Whether offloading could help, and a rate is known."""
        limited = self.memory is not None and self.copy_rate is not None
        return limited and self.layers.recomputable

    @property
    def may_recompute(self) -> bool:
        """Whether recomputing could help: layers have costs for it, and memory is limited."""
        return self.memory is not None and self.layers.recomputable

    def runtime_in(self, placement: OneRoutePlacement) -> Runtime | None:
        """Whose restrictions a hand-written schedule obeys: an own order in a V has none."""
        return None if not self.any_order and placement == "vee" else self.runtime

    @cached_property
    def space(self) -> Space:
        """Which stages may recompute as searches move from one candidate to the next."""
        return Space.of(self.layers, "choose" if self.may_recompute else "never")

    @property
    def free(self) -> Runtime | None:
        """Whose restrictions a searched order obeys: a runtime with its own runs no other."""
        return self.runtime if self.any_order else None

    def shape(self, placement: OneRoutePlacement, chunks: int = CHUNKS) -> Pipeline:
        """Return the pipeline of a placement."""
        return Pipeline(
            devices=self.devices,
            microbatches=self.microbatches,
            placement=placement,
            chunks=chunks,
            memory=self.memory,
            delay=self.delay,
            overlap=self.overlap,
        )

    @cached_property
    def delay(self) -> Delay:
        """Of links."""
        return link_delay(self.latency, self.bandwidth)

    def searched(
        self, chunks: Sequence[int] = (), *, all_again: bool | None = None
    ) -> tuple[Space, list[tuple[str, str]]]:
        """Return what a search is over, in all placements, and shapes that are left out.

        ``all_again``: all layers recompute, or none; else as the question has it.

        Raises
        ------
        BadInput
            If the layers can be cut for no placement.
        """
        layers, choice = self.layers, self.space.choice
        if all_again is not None:
            layers, choice = (_all_again(layers) if all_again else layers), "never"
        shapes, left_out = shapes_to_try(layers, self.shape("chain"), "any", chunks)
        if self.any_order:  # else a searched order obeys no restriction, and cannot run
            layers, shapes = for_runtime(layers, shapes, self.runtime)
        return Space.of(layers, choice, shapes), left_out

    def candidate(
        self,
        partition: tuple[range, ...],
        shape: Pipeline,
        recompute: Flags,
        runtime: Runtime | None,
        *,
        first: int | None = None,
        offload: bool = False,
    ) -> Candidate:
        """Return one way to cut, place and recompute, or to offload instead.

        The same one whenever it is asked for: whoever has it shares what is known of it.
        """
        key = partition, shape.homes, recompute, runtime, first, offload
        if key not in self.candidates:
            problem = self._problem(partition, shape, recompute, runtime, first)
            if offload and self.copy_rate is not None:
                problem = with_offload(problem, self.layers, partition, self.copy_rate)
            self.candidates[key] = Candidate(
                shape, partition, recompute, problem, runtime=runtime, first=first, offload=offload
            )
        return self.candidates[key]

    @cached_property
    def candidates(self) -> dict[tuple[object, ...], Candidate]:
        """Every candidate that was asked for."""
        return {}

    def under(self, candidate: Candidate, runtime: Runtime | None) -> Candidate:
        """Return a candidate's stages with what another runtime cannot run ruled out."""
        return self.candidate(
            candidate.partition,
            candidate.shape,
            candidate.recompute,
            runtime,
            first=candidate.first,
            offload=candidate.offload,
        )

    def in_any_order(self, candidate: Candidate) -> Candidate:
        """Return its stages in all orders that the runtime runs; of Megatron-LM's, in any."""
        return candidate if self.any_order else self.under(candidate, None)

    def _problem(
        self,
        partition: tuple[range, ...],
        shape: Pipeline,
        recompute: Flags,
        runtime: Runtime | None,
        first: int | None,
    ) -> Problem:
        layers = self.layers
        if runtime is not None:
            layers, (shape,) = for_runtime(layers, [shape], runtime)
        if first is not None:
            layers = first_recomputed(layers, partition, first)
        return problem_of_split(layers, partition, shape, recompute=recompute)

    def work_of(self, layer: int) -> int:
        """Compute of one microbatch in a layer, not recomputed, the least of both ways."""
        one = self.layers.layers[layer]
        return one.amount("F") + min(one.amount("BW"), one.amount("B") + one.amount("W"))

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


def _all_again(layers: Layers) -> Layers:
    """Return layers that all recompute, where they can: backwards are whole then."""
    return replace(
        layers,
        layers=tuple(
            one
            if one.recomputed is None
            else replace(one, costs=one.recomputed, recomputed=None, fused=True)
            for one in layers.layers
        ),
    )
