"""What the search is to be no worse than, each by means of its own, beside what it finds.

    python 02_rivals.py [--seconds 8] [--workers 2]     rivals.json anew, and the table
    python 02_rivals.py --table                         the table alone

Rivals: the same problem without modes, solved; all microbatches in one mode, under every
hand-written schedule and in orders of plain problems (``in_one_mode``); one mode for all
microbatches of a stage, solved; PipeOffload's PO-H, the longer-lived half of the chunks offloaded,
under every hand-written schedule. The table is put into README.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cases import HERE, RESULTS, RIVALS, problems

import pipesat
from pipesat.core.checker import check
from pipesat.core.errors import Deadlock
from pipesat.core.problem import Problem
from pipesat.core.schedule import Order, Schedule
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem
from pipesat.solver.modes.assign import in_modes
from pipesat.workflows.hand_written import hand_written
from pipesat.workflows.result import Result

PAGE = HERE / "README.md"
BEGIN, END = "<!-- begin rivals -->\n", "<!-- end rivals -->"
KINDS = ("keep", "all recompute", "all offload", "per stage", "PO-H")


class Solver:
    """Solves documents, each once: several problems have the same rivals."""

    def __init__(self, seconds: float, workers: int) -> None:
        self.seconds, self.workers = seconds, workers
        self.known: dict[str, Result] = {}

    def __call__(self, document: Mapping[str, Any]) -> Result:
        """Return what was found and proven."""
        key = json.dumps({**document, "name": ""}, sort_keys=True)
        if key not in self.known:
            problem = parse_problem(dict(document), "rival")
            self.known[key] = pipesat.solve(problem, time_limit=self.seconds, workers=self.workers)
        return self.known[key]


def without_modes(problem: Problem) -> dict[str, Any]:
    """The document in which everything is kept."""
    document = dict(problem.document)
    document.pop("mode_choice", None)
    drop = lambda entry, key: {k: v for k, v in entry.items() if k != key}  # noqa: E731
    document["stages"] = [drop(stage, "modes") for stage in document["stages"]]
    document["devices"] = [drop(device, "copy_channels") for device in document["devices"]]
    return document


def with_amounts(problem: Problem, mode: int) -> Iterator[dict[str, Any]]:
    """Documents in which a mode's amounts are the stages' own; copies take no time.

    One states what is held in the backward. The others are plain and have less memory instead: what
    one backward takes at most, or one or two activations, for copies that are under way.
    """
    document = without_modes(problem)
    stages, held_in_backward, excess, most = [], [], 0, 0
    for number, entry in enumerate(document["stages"]):
        amounts = problem.resulting(number, mode, 0)
        own = {key: getattr(amounts, key) for key in ("F", "B", "W", "BW", "backward")}
        held = amounts.offload.held if amounts.offload else amounts.held_after_F
        own |= {"held_after_F": held, "held_after_B": amounts.held_after_B}
        stages.append({"device": entry["device"], **own})
        held_in_backward.append(max(amounts.held_in_backward, amounts.held_after_F))
        excess = max(excess, held_in_backward[-1] - held)
        most = max(most, amounts.held_after_F if amounts.offload else 0)
    held = zip(stages, held_in_backward, strict=True)
    yield document | {"stages": [stage | {"held_in_backward": more} for stage, more in held]}
    for spare in (most, 2 * most) if most else (excess,):
        devices = [device | {"memory": device["memory"] - spare} for device in document["devices"]]
        yield document | {"stages": stages, "devices": devices}


def valid(problem: Problem, order: Order) -> int | None:
    """Makespan of an order, if it fits."""
    try:
        timed = time_order(problem, order)
    except Deadlock:
        return None
    return None if check(problem, timed) else timed.makespan


def guides_of(problem: Problem) -> list[Schedule]:
    """Every hand-written schedule that exists here, in keep, whether it fits or not."""
    rows = hand_written(problem, "makespan")
    return [row.schedule for row in rows if row.schedule is not None]


def in_one_mode(problem: Problem, mode: int, solve: Solver) -> Iterator[int | None]:
    """Makespans with every microbatch in one mode."""
    counts = enumerate(problem.microbatches)
    modes = {(stage, m): mode for stage, count in counts for m in range(count)}
    for guide in guides_of(problem):
        yield valid(problem, in_modes(problem, guide.order, modes))
    for document in with_amounts(problem, mode):
        found = solve(document).schedule
        if found is not None:
            yield valid(problem, in_modes(problem, found.order, modes))


def po_h(problem: Problem, name: str) -> Iterator[int | None]:
    """Makespans with the half that stays longest offloaded, under every hand-written schedule.

    Of a device's chunks that is the first half, of a single chunk every second microbatch.
    """
    modes: dict[tuple[int, int], int] = {}
    for chunks in (chunks for own in problem.chunks_on for chunks in own.values()):
        for place, stage in enumerate(chunks):
            names = [mode.name for mode in problem.stages[stage].modes]
            for m in range(problem.microbatches[stage]):
                if m % 2 if len(chunks) == 1 else place < len(chunks) // 2:
                    modes[stage, m] = 1 + names.index(name)
    for guide in guides_of(problem):
        yield valid(problem, in_modes(problem, guide.order, modes))


def solved(problem: Problem, result: Result) -> dict[str, Any]:
    """What was found of another document, as a schedule of the problem itself."""
    if result.schedule is None:
        return {"value": None}
    assert not check(problem, result.schedule), "modes are numbered alike, so it is one of both"
    return {"value": result.value, "optimal": result.status == "optimal"}


def least(values: Iterable[int | None]) -> int | None:
    """The least of those known."""
    return min((value for value in values if value is not None), default=None)


def rivals(problem: Problem, solve: Solver) -> dict[str, dict[str, Any]]:
    """Makespan of every rival, ``None`` where nothing fits, and which are proven optimal."""
    found = {"keep": solved(problem, solve(without_modes(problem)))}
    names = [mode.name for mode in problem.stages[0].modes]
    for number, name in enumerate(names, 1):
        found[f"all {name}"] = {"value": least(in_one_mode(problem, number, solve))}
    per_stage = dict(problem.document) | {"mode_choice": "stage"}
    if problem.mode_choice == "microbatch":  # else it is the problem itself
        found["per stage"] = solved(problem, solve(per_stage))
        if "offload" in names:
            found["PO-H"] = {"value": least(po_h(problem, "offload"))}
    return found


def better(rival: dict[str, Any], value: int) -> bool:
    """Whether a rival is shorter than what solve has found."""
    return rival["value"] is not None and rival["value"] < value


def _cell(rival: dict[str, Any] | None, value: int) -> str:
    if rival is None:
        return "-"
    if rival["value"] is None:
        return "none fits"
    proven = ", optimal" if rival.get("optimal") else ""
    return f"{rival['value']:,}{proven}" + (" **shorter**" if better(rival, value) else "")


def table() -> Iterator[str]:
    """Yield the lines that show rivals beside what solve has found and proven."""
    known, results = (json.loads(path.read_text()) for path in (RIVALS, RESULTS))
    yield f"| problem | {' | '.join(KINDS)} | search | bound | gap |"
    yield "| --- |" + " ---: |" * (len(KINDS) + 3)
    worse, gaps = 0, []
    for name, found in known["problems"].items():
        value, bound = results[name]["value"], results[name]["bound"]
        cells = [_cell(found.get(kind), value) for kind in KINDS]
        worse += any(better(rival, value) for rival in found.values())
        gaps.append(1 - bound / value)
        gap = "optimal" if value == bound else f"{100 * gaps[-1]:.1f} %"
        yield f"| `{name}` | {' | '.join(cells)} | {value:,} | {bound:,} | {gap} |"
    yield ""
    mean = sum(gaps) / len(gaps)
    yield f"Mean gap {100 * mean:.1f} %; a rival is shorter on {worse} of {len(gaps)} problems."


def main() -> None:
    parser = argparse.ArgumentParser(description="Solve the rivals of solve; print them beside it.")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each rival that is solved")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        solve = Solver(options.seconds, options.workers)
        found: dict[str, Any] = {"seconds": options.seconds, "workers": options.workers}
        found["problems"] = {}
        for name, problem in problems():
            found["problems"][name] = rivals(problem, solve)
            print(name, found["problems"][name], flush=True)
        RIVALS.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join(table()) + "\n"
    print(text)
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
