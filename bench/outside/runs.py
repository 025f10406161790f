"""Runs that others measured: what one of their figures, and a schedule's replay, say of the next.

Times of ops are not published with them. So each check takes a figure or two as given, says what
it assumes, and predicts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.outside.checks import Check, link
from pipesat.heuristics import BASELINES
from pipesat.heuristics.interleaved import interleaved
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import peak_memory
from pipesat.schedule.timing import time_order

MARIN = link("marin #7024", "github.com/marin-community/marin/issues/7024")
UNSLOTH = link("unsloth #10280", "github.com/unslothai/unsloth/pull/10280")
ZERO_BUBBLE = link(
    "zero-bubble #21", "github.com/sail-sg/zero-bubble-pipeline-parallelism/issues/21"
)
PADDLE = link("Paddle #62865", "github.com/PaddlePaddle/Paddle/pull/62865")
INTERNEVO = link("InternEvo #282", "github.com/InternLM/InternEvo/pull/282")

PROFILED: dict[str, int] = {"F": 29718, "B": 29444, "W": 19927, "comm": 527}
"""A stage of the 6.2B model: Zero Bubble paper, Table 9, 24 microbatches; microseconds."""


def alike(make: Callable[..., Problem], p: int, m: int, cut: int = 1, **more: Any) -> Problem:
    """Stages of the profiled model, each cut into so many chunks."""
    times = {kind: PROFILED[kind] // cut for kind in "FBW"} | {"comm": PROFILED["comm"]}
    return make(devices=p, microbatches=m, **times | more)


def by_span(problem: Problem, name: str) -> int:
    """Span of a schedule whose optimizer step is validated afterwards."""
    return time_order(problem, BASELINES[name](problem).order, "span").span


def dualpipev(m: int, backward: float) -> tuple[int, int]:
    """Makespan and peak on 8 ranks: pairs gain nothing, F runs again before B, and B = W."""
    half = round(50 * (backward - 1))
    times = {"F": 100, "B": 100 + half, "W": half}
    problem = Problem.vee(devices=8, microbatches=m, overlap=(1, 1), held_after_F=1, **times)
    schedule = BASELINES["dualpipev"](problem)
    return schedule.makespan, max(peak_memory(problem, schedule))


def marin() -> Iterator[Check]:
    """64 H100, DualPipeV, PP8: of the run with 32 microbatches that with 16, and its peak."""
    long, short, peak = 3.475980327, 128 * 8192 / 543_490.02, 59_153_094_656
    ratios = (2.5, 3.0, 3.5)
    (time, held), (times, most) = (
        zip(*(dualpipev(m, x) for x in ratios), strict=True) for m in (16, 32)
    )
    yield Check(
        "64 H100: seconds of 16 microbatches from those of 32, BW = 2.5, 3, 3.5 F",
        MARIN,
        [short] * len(ratios),
        [long * few / many for few, many in zip(time, times, strict=True)],
        within=0.02,
    )
    yield Check(
        "64 H100: bytes at the peak",
        MARIN,
        [peak],
        [peak * max(held) / max(most)],
    )


def unsloth() -> Iterator[Check]:
    """Two DGX Sparks, torch's 1F1B, one row per microbatch: of the largest batch the others."""
    for model, rows, speeds in (
        ("9B", (64, 128, 256), (1481, 1502, 1508)),
        ("70B", (16, 32, 64, 128), (160, 165, 168, 170)),
    ):
        steps = [BASELINES["1f1b"](alike(Problem.chain, 2, m, comm=0)).makespan for m in rows]
        last = speeds[-1] * steps[-1] / rows[-1]
        yield Check(
            f"2 DGX Spark, {model}: tokens/s of smaller batches",
            UNSLOTH,
            speeds[:-1],
            [last * m / step for m, step in zip(rows[:-1], steps[:-1], strict=True)],
            within=0.015,
        )


def zero_bubble() -> Iterator[Check]:
    """8 H800, 6.2B: m is not said; 24 of the paper's 24, 32 and 64 fits ZB-2P's speed best."""
    p, m, v = 8, 24, 4
    chain = alike(Problem.chain, p, m)
    fused = alike(Problem.chain, p, m, backward="fused")
    step = BASELINES["1f1b"](fused).makespan
    loop = alike(Problem.loop, p, m, v, backward="fused", chunks=v)
    steps = (
        by_span(chain, "zb-h2"),
        interleaved(loop, group=p, per_hop=2).makespan,
        by_span(alike(Problem.vee, p, m, 2), "zb-v"),
    )
    yield Check(
        "8 H800: samples/s of ZB-2P, interleaved 1F1B, ZB-V from 1F1B's",
        ZERO_BUBBLE,
        (67, 66, 64),
        [55 * step / other for other in steps],
        within=0.08,
    )
    whole, twice = 8, 15  # activations of a stage that 1F1B and ZB-2P hold
    one = (79 - 48) / (twice - whole)
    rest = 48 - whole * one
    loop = alike(Problem.loop, p, m, v, held_after_F=1, chunks=v)
    vee = alike(Problem.vee, p, m, 2, held_after_F=1)
    held = (
        max(peak_memory(loop, interleaved(loop, group=p, per_hop=2))) / v,
        max(peak_memory(vee, BASELINES["zb-v"](vee))) / 2,
    )
    yield Check(
        "8 H800: GB of interleaved 1F1B, ZB-V from those of the others",
        ZERO_BUBBLE,
        (57, 53),
        [rest + one * share for share in held],
        within=0.1,
    )


def split_backwards() -> Iterator[Check]:
    """What ZB-H1 gains over 1F1B, and what it holds more."""
    problem = alike(Problem.chain, 4, 8)
    fused = BASELINES["1f1b"](problem.with_backward("fused")).makespan
    yield Check(
        "7B on 4 stages: tokens/s of ZB-H1 from 1F1B's",
        INTERNEVO,
        [2886],
        [2590 * fused / by_span(problem, "zb-h1")],
        within=0.05,
    )
    held = Problem.chain(
        devices=4, microbatches=16, F=1, B=1, W=1, held_after_F=1796, held_after_B=514
    )
    peaks = [peak_memory(held, BASELINES[name](held)) for name in ("zb-h1", "1f1b")]
    more = [zb - plain for zb, plain in zip(*peaks, strict=True)]
    yield Check(
        "4 RTX 3090: MB that ZB-H1 adds to 1F1B on ranks 2, 3",
        PADDLE,
        (1344 - 316, 1790 - 316),
        [more[rank] - more[0] for rank in (2, 3)],
        within=0.05,
    )


def checks() -> Iterator[Check]:
    """All of them."""
    for source in (marin, unsloth, zero_bubble, split_backwards):
        yield from source()
