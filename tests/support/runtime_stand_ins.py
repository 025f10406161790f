"""Small stand-ins for classes of AMD Primus, d9d, JaxPP, ELF and OLMo-core, in our own words.

They have what exported orders use, as the sources say it at the commits and releases that the
orders are written for (Primus fd1eeabb, d9d 0.24.0, JaxPP cf9e3862, ELF 0.1.0, OLMo-core 3.0.0),
and no more. What the real ones do with an order is in experiments/runtimes.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, NewType

# AMD Primus


class FuncType(Enum):
    """What a node of a rank's table does."""

    F = 1
    B = 2
    W = 3
    BW = 4
    SF = 5
    SB = 6
    RF = 7
    RB = 8


@dataclass
class SchedulerNode:
    """One entry of a rank's table."""

    func_type: FuncType
    mini_batch: int
    chunk: int
    args: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"({self.func_type.name}|{self.mini_batch}|{self.chunk})"


class PipelineScheduleAlgo(ABC):
    """What every algorithm of Primus derives from."""

    def __init__(self, pp_size: int, vpp_size: int, micro_batches: int) -> None:
        self.pp_size, self.vpp_size, self.micro_batches = pp_size, vpp_size, micro_batches

    @abstractmethod
    def generate_schedule_table(self) -> list[list[SchedulerNode]]: ...

    @abstractmethod
    def direction_map(self, rank: int, chunk: int, func_type: FuncType) -> dict[str, Any]: ...

    def generate_send_recv_nodes_comm_pair(
        self, rank: int, mini_batch: int, chunk: int, func_type: FuncType
    ) -> Any:
        """A send and its receive, each with the rank that posts it; of nothing sent, nothing."""
        way = self.direction_map(rank, chunk, func_type)
        to, send = way["next"]
        if to is None:
            return None, None
        ends = {"from_pp_rank": rank, "to_pp_rank": to}
        receive = {FuncType.SF: FuncType.RF, FuncType.SB: FuncType.RB}[send]
        there = way["send_to_chunk"]
        return (
            (rank, SchedulerNode(send, mini_batch, chunk, ends | {"send_to_chunk": there})),
            (to, SchedulerNode(receive, mini_batch, there, ends | {"recv_from_chunk": chunk})),
        )


# d9d


class ScheduleStyle(StrEnum):
    """Where stages lie."""

    loop = "loop"
    v = "v"


@dataclass(frozen=True)
class ForwardComputeAction:
    """F."""

    stage_idx: int
    microbatch_idx: int


@dataclass(frozen=True)
class BackwardFullInputComputeAction:
    """BW, or B."""

    stage_idx: int
    microbatch_idx: int
    full_backward: bool


@dataclass(frozen=True)
class BackwardWeightComputeAction:
    """W."""

    stage_idx: int
    microbatch_idx: int


class PipelineProgramBuilder(ABC):
    """What builds a program of d9d."""

    @property
    @abstractmethod
    def num_stages_per_rank(self) -> int: ...

    @property
    @abstractmethod
    def topology_style(self) -> ScheduleStyle: ...

    @abstractmethod
    def compose(self, num_microbatches: int, pp_size: int) -> dict[int, list[Any]]: ...


@dataclass
class Registry:
    """Which builder a configuration class means."""

    programs: dict[type, Callable[[Any], Any]] = field(default_factory=dict)

    def register_program(self, config: type) -> Callable[[Any], Any]:
        def decorate(build: Any) -> Any:
            self.programs[config] = build
            return build

        return decorate


def homes_of(pp_size: int, num_stages: int, style: ScheduleStyle) -> dict[int, int]:
    """The rank of every stage: round and round, or there and back."""
    ranks = [*range(pp_size)]
    laps = [ranks[::-1] if style == "v" and lap % 2 else ranks for lap in range(num_stages)]
    return dict(enumerate(rank for lap in laps for rank in lap))


# JaxPP

MpmdIdx = NewType("MpmdIdx", int)


class TaskType(Enum):
    """What a task does."""

    FWD = 1
    BWD = 2
    BWD_I = 3
    BWD_W = 4


@dataclass(frozen=True)
class Task:
    """One op of JaxPP."""

    stage_id: int
    mubatch_idx: int
    fwd_or_bwd: TaskType

    @classmethod
    def make(cls, stage_id: int, mubatch_idx: int, fwd_or_bwd: TaskType) -> Task:
        return cls(stage_id, mubatch_idx, fwd_or_bwd)


class FusedTask(tuple[Task, ...]):
    """Tasks in one compiled unit."""


@dataclass(eq=True, frozen=True)
class BaseSchedule(ABC):
    """What every schedule of JaxPP derives from."""

    num_stages: int
    is_partial_bwd: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        assert self.num_stages > 0


# ELF


class Operation(NamedTuple):
    """One operation of ELF, with the options that change what it does."""

    kind: str
    block_id: int
    mb_id: int
    rank: int
    options: tuple[str, ...] = ()


@dataclass
class FixedSchedule:
    """What makes operations of a list of (kind, block, microbatch)."""

    schedule_dict: dict[str, Any]

    def __call__(self, placement: list[int], n_micro_batches: int) -> list[Operation]:
        found = [Operation(*op, placement[op[1]]) for op in self.schedule_dict["order"]]
        assert {op.mb_id for op in found} == {*range(n_micro_batches)}
        return found


@dataclass
class RematScheduler:
    """What adds recomputation, by option, block and microbatch."""

    base: FixedSchedule
    solution: dict[str, list[list[bool]]]

    def __call__(self, placement: list[int], n_micro_batches: int) -> list[Operation]:
        made: list[Operation] = []
        for op in self.base(placement, n_micro_batches):
            full, activations, both = (
                self.solution[name][op.block_id][op.mb_id]
                for name in ("full_fwd", "activations_bwd", "full_bwd")
            )
            again = {"f": full * ["remat_strategy"], "b": (activations or both) * ["recompute"]}
            if op.kind == "w":
                made += [op._replace(kind="recompute f")] * (activations or both)
                made += [op._replace(kind="recompute b")] * both
            made.append(op._replace(options=tuple(again.get(op.kind, []))))
        return made


class ElfPipeline(ABC):
    """What runs a schedule; its groups are of neighbouring stages' ranks."""

    def __init__(self, model: list[Any], **options: Any) -> None:
        self.model, self.options = model, options
        self.placement = options["placement"]
        signatures = [Signature(stage) for stage in range(len(self.placement))]
        self.groups = self._init_p2p_process_groups(signatures)

    @abstractmethod
    def _init_p2p_process_groups(self, signatures: list[Signature]) -> Any: ...


class Signature(NamedTuple):
    """Where a stage's inputs come from: the stage before it."""

    stage: int

    def get_all_sources(self) -> list[int | None]:
        return [self.stage - 1] if self.stage else [None]


def new_group(ranks: list[int], device_id: Any) -> tuple[int, ...]:
    """A group of ranks, each once."""
    if len({*ranks}) < len(ranks) or device_id is not None:
        raise ValueError("ranks list must not contain duplicate entries")
    return tuple(ranks)


# OLMo-core

FORWARD: Final = "F"
FULL_BACKWARD: Final = "B"
FULL_BACKWARD_CONT: Final = "B_"


class PipelineAction(NamedTuple):
    """What a rank does in a slot."""

    stage_index: int
    computation_type: str
    microbatch_index: int


class CustomScheduleInterleaved1F1B:
    """What runs a table of slots; the number of microbatches may change from step to step."""

    style = "loop"

    def __init__(self, ranks: int, n_microbatches: int) -> None:
        self.pp_group_size, self._num_stages = ranks, 2 * ranks
        style = ScheduleStyle(self.style)
        self.stage_index_to_group_rank = homes_of(ranks, self._num_stages, style)
        self.pipeline_order_source = ""
        self.pipeline_order: dict[int, list[PipelineAction | None]] = {}
        self.reset_n_microbatches(n_microbatches)

    def reset_n_microbatches(self, n_microbatches: int) -> None:
        self._n_microbatches = n_microbatches
        if n_microbatches % max(1, n_microbatches // self.pp_group_size):
            raise ValueError("must be a multiple of the number of rounds")
        self.configure_pipeline_order()

    def configure_pipeline_order(self) -> None:
        self.pipeline_order_source = "built in"


class CustomSchedule1F1BV(CustomScheduleInterleaved1F1B):
    """The same with stages in a V."""

    style = "v"


def pad_to_max_length(rows: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """All rows as long as the longest."""
    most = max(map(len, rows.values()))
    return {rank: row + [None] * (most - len(row)) for rank, row in rows.items()}


def _modules() -> Iterator[ModuleType]:
    def module(name: str, *things: Any, **named: Any) -> ModuleType:
        made = ModuleType(name)
        vars(made).update({thing.__name__: thing for thing in things} | named)
        return made

    scheduler = "primus.core.pipeline_parallel.scheduler"
    factory = module(f"{scheduler}.schedule_table_factory", pp_algorithm_map={})
    yield module(scheduler, schedule_table_factory=factory)
    yield module(f"{scheduler}.algorithms.base", PipelineScheduleAlgo)
    yield module(f"{scheduler}.scheduler_node", FuncType, SchedulerNode)
    component = "d9d.pipelining.infra.schedule.component"
    yield module("d9d.pipelining.factory.registry", PIPELINE_PROGRAM_REGISTRY=Registry())
    yield module(
        f"{component}.program",
        PipelineProgramBuilder,
        ScheduleStyle,
        build_stage_to_host_rank_topology=homes_of,
        add_communication_ops=lambda actions, **_: actions,
    )
    yield module(
        f"{component}.runtime",
        BackwardFullInputComputeAction,
        BackwardWeightComputeAction,
        ForwardComputeAction,
    )
    yield module("jaxpp.schedules", BaseSchedule, FusedTask, Task)
    yield module("jaxpp.types", TaskType, MpmdIdx=MpmdIdx)
    distributed = module("torch.distributed", new_group)
    yield distributed
    cuda = module("torch.cuda", is_available=lambda: False)
    yield module("torch", distributed=distributed, cuda=cuda)
    yield module("elf", Pipeline=ElfPipeline)
    yield module("elf.scheduling.ilp", RematScheduler)
    yield module("elf.scheduling.schedulers", FixedSchedule)
    kinds = {"FORWARD": FORWARD, "FULL_BACKWARD": FULL_BACKWARD}
    transformer = "olmo_core.train.train_module.transformer.pipeline"
    schedule = module(
        f"{transformer}.pipeline_schedule",
        PipelineAction,
        CustomScheduleInterleaved1F1B,
        CustomSchedule1F1BV,
        pad_to_max_length,
        **kinds,
        FULL_BACKWARD_CONT=FULL_BACKWARD_CONT,
    )
    yield module(transformer, pipeline_schedule=schedule)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Let them be imported, as far as they stand here."""
    made: dict[str, ModuleType] = {}
    for module in _modules():
        parts = module.__name__.split(".")
        for end in range(1, len(parts)):
            made.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        made[module.__name__] = module
    before = {name: sys.modules.get(name) for name in made}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def loaded(path: Path) -> ModuleType:
    """Run an exported file, as its user's program would."""
    module = ModuleType("pipesat_order")
    sys.modules[module.__name__] = module  # dataclasses look there
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return module
