"""What a report's figures rest on, and how to make them again."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Final

from pipesat.core.amounts import rounded
from pipesat.core.problem import Problem
from pipesat.core.result import Result
from pipesat.core.rules import one_of_each
from pipesat.report.tables import counted, held, plain, time

_MOST_CLASSES = 12  # named
_EXACT = 1 << 53  # integers up to here are exact in a browser


def assumptions(problem: Problem) -> list[tuple[str, list[str]]]:
    """Return what the model holds to be true of this problem, and what it leaves out."""
    return [("Modelled", [*_modelled(problem)]), ("Not modelled", [*_not_modelled(problem)])]


def _modelled(problem: Problem) -> Iterator[str]:
    times = plain(problem.time_unit, 20) or "a unit that the problem does not name"
    amounts = plain(problem.memory_unit, 40) or "a unit that the problem does not name"
    yield f"Times are whole numbers in {times}, memory in {amounts}."
    if problem.estimate:
        yield f"All times and memory are an estimate: {plain(problem.estimate, 300)}"
    routes = " and ".join(
        f"{counted(route.microbatches, 'microbatch', 'es')} through "
        f"{counted(len(route.stages), 'stage')}"
        for route in problem.routes
    )
    ranks = counted(len(problem.devices), "rank")
    ways = "" if len(problem.routes) == 1 else f"; {len(problem.routes)} routes"
    yield f"{routes}, on {ranks}{ways}."
    yield "A rank runs one op at a time, and every op lasts exactly as long as its stage says."
    yield from _of_classes(problem)
    yield from _of_modes(problem)
    if problem.overlap is not None and problem.overlap.listed:
        count = len(problem.overlap.listed)
        said = ["in the time that the problem states"] if problem.overlap.times else []
        said += ["in a share of what the two take alone"] if problem.overlap.factors else []
        yield (
            f"{counted(count, 'combination')} of two kinds of ops of a rank may run as one, "
            f"{' or '.join(said)}; a pair sends both results at its end."
        )
    if problem.overlap is not None and problem.overlap.factor is not None:
        num, den = problem.overlap.factor
        other = " that are not listed" if problem.overlap.listed else ""
        yield (
            f"An F and a BW on one rank{other} may overlap; the pair lasts {num}/{den} of their "
            "sum, and at least as long as the longer of them."
        )
    yield _transfers(problem)
    yield (
        "Memory of a rank: its static part, what each F holds until its backward ends, and what "
        "each B holds until its W ends. What ends at an instant is free for what starts then."
    )
    yield _caps(problem)
    yield (
        "Makespan: end of the last op, time starting at 0. Span: the longest time from a rank's "
        "first op to the end of its last. The bubble of the makespan is 1 − compute time / "
        "(ranks × makespan), of the span 1 − largest load of a rank / span."
    )


_ORDERS: Final = {
    "given": "Every stage runs its F's, and its backwards, in the order of the numbers.",
    "same": "All stages of a route run their F's and their backwards in one order of the "
    "microbatches, which is chosen.",
    "free": "Every stage runs the microbatches in an order of its own.",
}


def _of_classes(problem: Problem) -> Iterator[str]:
    """What holds of microbatches that differ."""
    for which, route in enumerate(problem.routes):
        if route.classes is None:
            continue
        counts = Counter(route.classes)
        named = [
            f"{plain(kind.name)} ({counts[place]:,})"
            for place, kind in enumerate(route.definitions[:_MOST_CLASSES])
        ]
        left = len(route.definitions) - len(named)
        more = f" and {left:,} more" if left else ""
        where = f" of route {which}" if len(problem.routes) > 1 else ""
        yield (
            f"The microbatches{where} are of {counted(len(route.definitions), 'class', 'es')}: "
            f"{', '.join(named)}{more}; each has the times, amounts and delays of its class."
        )
    if problem.has_lists:
        yield _ORDERS[problem.order]


def _of_modes(problem: Problem) -> Iterator[str]:
    """What holds of memory modes."""
    if any(stage.held_in_backward for stage in problem.stages):
        yield "While a backward runs, its microbatch may hold more than before and after it."
    names = dict.fromkeys(plain(mode.name) for stage in problem.stages for mode in stage.modes)
    if not names:
        return
    choice = "microbatch of a stage" if problem.mode_choice == "microbatch" else "stage"
    yield f"Every {choice} runs in one memory mode: keep, {', '.join(names)}; which is chosen."
    if any(mode.offload for stage in problem.stages for mode in stage.modes):
        channels = sorted({device.copy_channels for device in problem.devices})
        ways = {1: "one channel for both directions", 2: "one channel for each direction"}
        yield (
            "Copies to the host and back occupy no compute; those of a channel run one at a time. "
            f"A rank has {' or '.join(ways[count] for count in channels)}. What an F holds is free "
            "from the end of the copy out to the start of the copy back, but for what stays."
        )
    yield "Recomputed work does not count as useful in the bubbles."


def _transfers(problem: Problem) -> str:
    delays = [
        delay
        for op in one_of_each(problem)
        if op.kind == "F" and (link := problem.link(op.stage, op.microbatch)) is not None
        for delay in (link.F, link.B)
    ]
    if not any(delays):
        return "Transfers between ranks take no time."
    low, high = min(delays), max(delays)
    texts = dict.fromkeys(time(problem, value) for value in (low, high))
    return (
        f"A result reaches another rank {' to '.join(texts)} after its op has ended; transfers "
        "neither occupy a rank's compute nor wait for each other."
    )


def _caps(problem: Problem) -> str:
    caps = {device.memory for device in problem.devices}
    if caps == {None}:
        return "No rank has a memory limit."
    if len(caps) == 1:
        return f"Every rank's memory is limited to {held(problem, caps.pop(), rounded)}."
    low = min(cap for cap in caps if cap is not None)
    high = max(cap for cap in caps if cap is not None)
    some = ", and some have no limit" if None in caps else ""
    least, most = (held(problem, cap, rounded) for cap in (low, high))
    return f"Memory limits lie between {least} and {most}{some}."


def _not_modelled(problem: Problem) -> Iterator[str]:
    yield "Variation of op times from step to step, and transfers that queue: compare --noise."
    yield "Launch overhead of each op, recompilation, and a slowdown of compute by transfers."
    yield "Data loading, the gradient reduction across replicas, and the optimizer's step."
    yield "Fragmentation and caches of the memory allocator; buffers that the problem leaves out."
    if _longest(problem) > _EXACT:
        yield "Times beyond 2^53 are rounded in the timeline; the tables are exact."


def _longest(problem: Problem) -> int:
    """At least the makespan of every sensible schedule: all ops, and all delays, in a row."""
    work = way = 0
    for op in one_of_each(problem):
        if op.kind == "F":
            data = problem.amounts(op.stage, op.microbatch, op.mode)
            link = problem.link(op.stage, op.microbatch)
            count = problem.microbatches[op.stage]
            work += count * (data.F + max(data.B + data.W, data.BW))
            way += count * (link.F + link.B) if link else 0
    return work + 2 * way


def commands(result: Result, folder: str) -> list[str]:
    """Return the commands that make the result and its report again."""
    inside = shlex.quote(f"{folder.rstrip('/')}/problem.json")
    seconds = max(1, math.ceil(result.wall_s))
    solve = f"pipesat solve {inside} -o again --objective {result.objective}"
    solve += f" --time-limit {seconds} --workers {result.workers} --seed {result.seed}"
    if result.target is not None:
        solve += f" --for {shlex.quote(result.target)}"
    lines = [solve]
    if result.schedule is not None:
        schedule = shlex.quote(f"{folder.rstrip('/')}/schedule.json")
        lines.append(f"pipesat check {inside} {schedule}")
    lines.append(f"pipesat show {shlex.quote(folder)} --html report.html")
    return [plain(line, 1000) for line in lines]


def origin(result: Result) -> str:
    """Say how long the search took, with which versions, and of which problem."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))
    return (
        f"Found in {result.wall_s:.1f} s with {versions or 'unknown versions'}. "
        "The search is limited by time, so another machine may stop with another "
        "schedule; pipesat check verifies this one without the solver. "
        f"Problem's digest: {result.problem.sha256}."
    )
