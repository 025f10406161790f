"""Formulas and counts that others published, and what our replay of the same schedule says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.outside.checks import Check, link
from pipesat.bounds.closed_form import closed_form_bound
from pipesat.heuristics import BASELINES
from pipesat.problem.ops import members
from pipesat.problem.problem import Problem
from pipesat.runtimes.torch.lint import LETTER_OF
from pipesat.schedule.metrics import peak_memory

DUALPIPE = link("DualPipe", "github.com/deepseek-ai/DualPipe")
MINDSPEED = link("MindSpeed", "github.com/Ascend/MindSpeed")
HETEROPIPE = link("heteropipe 0.1.0", "pypi.org/project/heteropipe/0.1.0")
AICONFIGURATOR = link("aiconfigurator #1459", "github.com/ai-dynamo/aiconfigurator/pull/1459")
TORCH = link("torch 2.15", "pypi.org/project/torch/2.15.0")

SHAPES = ((4, 10), (4, 14), (8, 20))
PAIRS = (12, 11, 8)
"""Times of a pair where F = B = W = 4: 3, 2.75 and 2 chunks' F."""
CHAINS = (
    ((113, 290, 262), (0, 0), 100),
    ((5, 10, 10, 50), (2, 1, 3), 16),
    ((2, 1, 1, 3), (0, 0, 0), 8),
)
"""Examples of heteropipe's: times of the stages, delays, microbatches."""
DECODE = (3153, 3150, 3150, 3150, 3150, 3150, 3150, 3901)
"""Qwen3-32B on H20: decode times of eight stages, in microseconds."""
IN_FLIGHT = {
    "interleaved-1f1b": (8, "loop", (11, 9, 7, 5)),
    "interleaved-zb": (8, "loop", (8, 8, 8, 8)),
    "zb-v": (8, "vee", (8, 8, 8, 8)),
    "dualpipev": (10, "vee", (9, 9, 9, 9)),
    "looped-bfs": (8, "loop", (16, 16, 16, 16)),
}
"""By torch's liveness analysis on 4 ranks: microbatches, placement, slots on each rank."""


def idle_of_last_rank(p: int, m: int, **more: Any) -> float:
    """Idle time of DualPipeV's last rank in the makespan, in F of a chunk."""
    problem = Problem.vee(devices=p, microbatches=m, F=4, B=4, W=4, **more)
    schedule = BASELINES["dualpipev"](problem)
    return (schedule.makespan - sum(t.end - t.start for t in schedule.devices[-1])) / 4


def forward_only(times: Sequence[int], delays: Sequence[int], m: int) -> Problem:
    """A chain whose stages have no backward."""
    edges = [{"src": s, "dst": s + 1, "F": d} for s, d in enumerate(delays)]
    more: dict[str, Any] = {"B": 0, "W": 0, "backward": "none", "comm": {"edges": edges}}
    return Problem.chain(devices=len(times), microbatches=m, F=[*times], **more)


def last_ends(times: Sequence[int], delays: Sequence[int], m: int) -> tuple[int, int]:
    """When the last microbatch leaves a chain of forwards, and what no schedule beats."""
    problem = forward_only(times, delays, m)
    return BASELINES["list-scheduling"](problem).makespan, closed_form_bound(
        problem, "makespan"
    ).value


def asynchronous(times: Sequence[int], delays: Sequence[int], m: int) -> int:
    """heteropipe's second theorem: links carry while devices compute."""
    return sum(times) + sum(delays) + (m - 1) * max(times)


def held_by_sends(times: Sequence[int], delays: Sequence[int]) -> tuple[int, ...]:
    """Times of stages whose device waits until its output has arrived."""
    return tuple(map(sum, zip(times, (*delays, 0), strict=True)))


def counted(name: str) -> Problem:
    """A problem on 4 devices, two chunks each, that hold 1 from F to W."""
    m, placement, _ = IN_FLIGHT[name]
    make = {"loop": Problem.loop, "vee": Problem.vee}[placement]
    return make(devices=4, microbatches=m, F=1, B=1, W=1, held_after_F=1, held_after_B=1)


def in_flight(name: str) -> list[int]:
    """Most chunks that a schedule holds on each device."""
    return peak_memory(counted(name), BASELINES[name](counted(name)))


def cells(name: str) -> tuple[int, list[list[str]]]:
    """Its number of microbatches and its order, in torch's letters."""
    rows = BASELINES[name](counted(name)).order
    ops = [[op for item in row for op in members(item)] for row in rows]
    texts = [[f"{op.stage}{LETTER_OF[op.kind]}{op.microbatch}" for op in row] for row in ops]
    return IN_FLIGHT[name][0], texts


def checks() -> Iterator[Check]:
    """All of them."""
    shapes = [(p, m, pair) for p, m in SHAPES for pair in PAIRS]
    yield Check(
        "DualPipeV's idle time, (p-1)(F&B+B-3W)",
        DUALPIPE,
        [(p - 1) * (pair + 8 - 12) / 4 for p, _, pair in shapes],
        [idle_of_last_rank(p, m, overlap=(pair, 12)) for p, m, pair in shapes],
    )
    yield Check(
        "the same with full backwards, (p-1)(F&B+B-W)-F",
        MINDSPEED,
        [(p - 1) * (3 + 2 - 1) - 1 for p, _ in SHAPES],
        [idle_of_last_rank(p, m, backward="fused") for p, m in SHAPES],
    )
    yield Check(
        "makespan of forwards alone",
        HETEROPIPE,
        [asynchronous(*chain) for chain in CHAINS],
        [last_ends(*chain)[0] for chain in CHAINS],
    )
    chains = [(held_by_sends(times, delays), (), m) for times, delays, m in CHAINS]
    yield Check(
        "the same if sends hold devices",
        HETEROPIPE,
        [asynchronous(*chain) for chain in chains],
        [last_ends(*chain)[0] for chain in chains],
    )
    ends = [last_ends(DECODE, (), m)[0] for m in (64, 65)]
    yield Check(
        "balance of eight decode stages",
        AICONFIGURATOR,
        [0.8316],
        [round(sum(DECODE) / len(DECODE) / (ends[1] - ends[0]), 4)],
    )
    yield Check(
        "chunks in flight, five schedules",
        TORCH,
        [slots for _, _, ranks in IN_FLIGHT.values() for slots in ranks],
        [peak for name in IN_FLIGHT for peak in in_flight(name)],
    )
