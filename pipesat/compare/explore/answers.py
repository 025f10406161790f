"""What the page asks for: schedules, the curve, a search under way, files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pipesat.compare.best_known import Comparison
from pipesat.compare.explore.known import Known
from pipesat.compare.explore.stated import NUMBERS, problem_of
from pipesat.compare.exports import export
from pipesat.compare.frontier.capacities import at_cap
from pipesat.compare.frontier.curve import Curve
from pipesat.compare.report import tables
from pipesat.compare.report.data import LARGEST, case_data
from pipesat.compare.report.drawing import legend
from pipesat.compare.report.page import lead
from pipesat.compare.result_folder import write_result_folder
from pipesat.core.amounts import rounded_down
from pipesat.core.claims import Standing
from pipesat.core.errors import BadInput, Fault, PipesatError
from pipesat.core.progress import being_done
from pipesat.core.settings import MOST_SECONDS
from pipesat.runtimes import EXPORTERS
from pipesat.runtimes.written import files_beside

if TYPE_CHECKING:
    from pipesat.problem.problem import Problem
    from pipesat.schedule.result import Improvement

Answer: TypeAlias = dict[str, Any]

_BEAT: Final = 0.25  # seconds
_MOST_KEPT: Final = 24  # pipelines
EVERYTHING, CURVE = "solve", "frontier"
"""Exports that are no format of an order: what these commands write."""


class Answers:
    """What one run answers; ``output`` is the only folder that files are written to.

    One search runs at a time: the next one ends it, and so does whoever no longer listens.
    """

    def __init__(self, begin: Answer, output: Path | None) -> None:
        self.begin, self.output = begin, output
        self.stop = threading.Event()
        self._known: dict[str, Known] = {}
        self._keeping, self._searching = threading.Lock(), threading.Lock()

    def start(self, stated: Answer) -> Answer:
        """Return what the page begins with, and what it can export."""
        del stated
        exports = [EVERYTHING, CURVE, *EXPORTERS] if self.output is not None else []
        return {
            "begin": self.begin,
            "numbers": dict(NUMBERS),
            "output": None if self.output is None else str(self.output),
            "exports": exports,
        }

    def schedules(self, stated: Answer) -> Answer:
        """Return every hand-written schedule, ranked and ready to be drawn, and the best known."""
        problem = problem_of(stated)
        known = self._of(problem, stated)
        return _shown(known.compared(problem), known)

    def curve(self, stated: Answer) -> Answer:
        """Return value and bound against memory, of all that is known."""
        problem = problem_of(stated)
        return {"curve": self._of(problem, stated).document(problem)}

    def solve(self, stated: Answer) -> Iterator[bytes]:
        """Search, and yield lines: each improvement, then the answer."""
        problem = problem_of(stated)
        known = self._of(problem, stated)
        return self._lines(stated, problem, known, partial(known.search, problem))

    def frontier(self, stated: Answer) -> Iterator[bytes]:
        """Search along the curve, and yield lines as ``solve`` does."""
        problem = problem_of(stated)
        known = self._of(problem, stated)
        return self._lines(stated, problem, known, partial(known.search_curve, problem))

    def halt(self, stated: Answer) -> Answer:
        """End the search under way; its best so far is its answer."""
        del stated
        self.stop.set()
        return {}

    def export(self, stated: Answer) -> Answer:
        """Write what the command of this name would, into the folder of this run."""
        folder, to = self.output, stated.get("to")
        if folder is None:
            raise BadInput("expected a folder to write to: start with `pipesat explore -o DIR`")
        problem, name = problem_of(stated), str(stated.get("schedule"))
        known = self._of(problem, stated)
        case = known.compared(problem)
        if to == EVERYTHING:
            written = write_result_folder(folder, case.result, [])
            files, notes = (
                [*written.files, *(["gantt.png"] if written.schedule else [])],
                [written.told],
            )
        elif to == CURVE:
            if known.frontier is None:
                raise BadInput("expected a curve that was searched: press Search the curve first")
            known.frontier.save(folder / CURVE)
            files, notes = [f"{CURVE}/frontier.json", f"{CURVE}/frontier.csv"], []
        else:
            row = next((row for row in case.rows if row.name == name and row.schedule), None)
            if row is None or row.schedule is None:
                raise BadInput("expected a schedule of this problem", where="schedule", value=name)
            made = export(problem, row.schedule, str(to), f"{folder}/")
            assert made.path is not None  # noqa: S101
            files, notes = [made.path.name, *files_beside(made, made.path)], [*made.notes]
        return {"files": files, "notes": [note for note in notes if note]}

    def _of(self, problem: Problem, stated: Answer) -> Known:
        """Return what is known of a pipeline, whatever the capacities of its devices."""
        objective = stated.get("objective", "makespan")
        if objective not in ("makespan", "span"):
            raise BadInput("expected makespan or span", where="objective", value=objective)
        unlimited = at_cap(problem, None)
        key = f"{objective} {unlimited.sha256}"
        with self._keeping:
            found = self._known.pop(key, None) or Known(Curve(problem, objective))
            self._known[key] = found  # the last used is the last
            if len(self._known) > _MOST_KEPT:
                del self._known[next(iter(self._known))]
        return found

    def _lines(
        self, stated: Answer, problem: Problem, known: Known, search: Callable[..., None]
    ) -> Iterator[bytes]:
        """Run a search in a thread of its own, and yield what it tells as lines of JSON."""
        seconds = _seconds(stated)
        self.stop.set()
        self.stop = stop = threading.Event()
        news: SimpleQueue[Answer] = SimpleQueue()

        def answer() -> Answer:
            search(time_limit=seconds, stop=stop, listener=_to(news.put, problem))
            return _shown(known.compared(problem), known) | {"curve": known.document(problem)}

        def run() -> None:
            with self._searching:
                news.put({"done": guarded(answer)})

        threading.Thread(target=run, daemon=True).start()
        try:
            while True:
                try:
                    event = news.get(timeout=_BEAT)
                except Empty:
                    event = {"doing": tables.plain(being_done())}
                yield json.dumps(event).encode() + b"\n"
                if "done" in event:
                    return
        finally:
            stop.set()

    def close(self, seconds: float) -> None:
        """End the search under way and wait for it."""
        self.stop.set()
        if self._searching.acquire(timeout=seconds):
            self._searching.release()


def guarded(work: Callable[[], Answer]) -> Answer:
    """Return an answer, or what is wrong with the question."""
    try:
        return work()
    except (Fault, PipesatError) as error:
        return {"error": tables.plain(str(error), 600)}


def _seconds(stated: Mapping[str, Any]) -> float:
    seconds = stated.get("seconds")
    if type(seconds) not in (int, float) or not 0 < seconds <= MOST_SECONDS:
        raise BadInput(f"expected above 0, at most {MOST_SECONDS}", where="seconds", value=seconds)
    return float(seconds)


def _to(tell: Callable[[Answer], None], problem: Problem) -> Callable[[Improvement], None]:
    def heard(one: Improvement) -> None:
        refuted = one.value is not None and one.bound is not None and one.bound > one.value
        standing = Standing(one.value, None if refuted else one.bound)
        told = _standing(problem, standing) | {"seconds": one.seconds}
        tell(told | {"source": tables.plain(one.source)})

    return heard


def _standing(problem: Problem, standing: Standing) -> Answer:
    shown = [
        tables.time(problem, standing.value),
        tables.time(problem, standing.bound, rounded_down),
        standing.gap_text(),
    ]
    return {"value": standing.value, "bound": standing.bound, "shown": shown}


def _shown(case: Comparison, known: Known) -> Answer:
    """Return what the page shows of all schedules of a problem."""
    result, problem = case.result, case.problem
    data, memory = case_data(case, 8 * LARGEST), tables.knows_memory(case)
    rows = [row for row in tables.ordered(case) if row.schedule is not None]
    return _standing(problem, result.standing) | {
        "data": data,
        "memory": memory,
        "legend": legend(problem, data, memory=memory),
        "name": tables.plain(problem.name),
        "lead": lead(result),
        "facts": [(label, tables.plain(text, 900)) for label, text in result.facts() if text],
        "rows": [
            tables.line_of(row, problem) | {"value": row.value(result.objective)} for row in rows
        ],
        "leftOut": tables.left_out(case),
        "searched": problem.sha256 in known.results,
        "proven": result.standing.proven,
        "verdict": result.standing.verdict,
        "finder": "" if result.schedule is None else tables.plain(result.schedule.source),
    }
