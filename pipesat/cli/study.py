"""What ``frontier`` and ``min-memory`` share: how they solve, and how caps are written."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesat.cli.options import refuse_repeated
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.placement.from_numbers import share_of_1f1b

if TYPE_CHECKING:
    import threading

    from pipesat.core.problem import Problem
    from pipesat.core.result import Bound, Result
    from pipesat.core.schedule import Objective, Schedule
    from pipesat.core.solving import Listener, Solve, Starts
    from pipesat.frontier.published import Build

_SLOW = {"v-auto"}  # seconds, where others take milliseconds
_NUMBER = re.compile(r"[0-9]{1,13}")


def solver_of(objective: Objective, workers: int | None, seed: int) -> Solve:
    """Return how a study solves: with every hand-written schedule, with some, or with none."""
    from pipesat.solver import solve as search
    from pipesat.workflows import solve as solve_with_all

    def solve(
        problem: Problem,
        *,
        starts: Starts,
        time_limit: float,
        schedules: Sequence[Schedule],
        known_bound: Bound | None,
        listener: Listener,
        stop: threading.Event,
    ) -> Result:
        expires = time.monotonic() + time_limit
        if starts == "all":
            return solve_with_all(
                problem, objective=objective, workers=workers, seed=seed, time_limit=time_limit,
                schedules=schedules, known_bound=known_bound, listener=listener, stop=stop,
            )  # fmt: skip
        greedy = _greedy(problem, lambda: time.monotonic() > expires) if starts == "greedy" else ()
        return search(
            problem, objective=objective, workers=workers, seed=seed, time_limit=time_limit,
            warm_starts=greedy, schedules=schedules, known_bound=known_bound,
            listener=listener, stop=stop,
        )  # fmt: skip

    return solve


def _greedy(problem: Problem, give_up: Callable[[], bool]) -> Iterator[Schedule]:
    """Schedules for any capacities that are made in no time."""
    from pipesat.heuristics import BASELINES
    from pipesat.heuristics.list_scheduling import list_schedules

    with contextlib.suppress(NotApplicable):
        yield BASELINES["zb-auto"](problem)
    yield from list_schedules(problem, give_up)


def hand_written() -> dict[str, Build]:
    """Return the published schedules by name, the slow one last; list scheduling is ours."""
    from pipesat.heuristics import BASELINES, LIST_SCHEDULING

    names = sorted(BASELINES.keys() - {LIST_SCHEDULING}, key=[*BASELINES].index)
    names.sort(key=lambda name: name in _SLOW)
    return {name: BASELINES[name] for name in names}


def caps_of(option: str, text: str) -> list[int | Fraction]:
    """Read ``40000,1f1b*0.75``: numbers, and shares of 1F1B's memory.

    Raises
    ------
    BadInput
        If a word is neither.
    """
    caps: list[int | Fraction] = []
    for word in text.split(","):
        share = share_of_1f1b(word)
        if share is None and not _NUMBER.fullmatch(word.strip()):
            raise BadInput(
                "expected numbers or shares such as 1f1b*0.75, parted by commas",
                where=option, value=text,
            )  # fmt: skip
        caps.append(int(word) if share is None else share)
    refuse_repeated(option, [word.strip() for word in text.split(",")], text)
    return caps


def versions() -> dict[str, str]:
    """Versions that results depend on."""
    names = ("pipesat", "ortools", "numpy")
    return {name: importlib.metadata.version(name) for name in names}
