"""What the page asks for: schedules, the curve, a search under way, files."""

from __future__ import annotations

import json
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from pipesat.compare.best_known import Comparison
from pipesat.compare.explore.known import Known
from pipesat.compare.explore.stated import NUMBERS, problem_of
from pipesat.compare.exports import export
from pipesat.compare.frontier.capacities import at_cap
from pipesat.compare.report import tables
from pipesat.compare.report.data import LARGEST, case_data
from pipesat.compare.report.drawing import legend
from pipesat.compare.report.page import lead
from pipesat.compare.result_folder import write_result_folder
from pipesat.core.amounts import rounded, rounded_down
from pipesat.core.claims import Standing
from pipesat.core.errors import BadInput, PipesatError, require
from pipesat.core.progress import being_done
from pipesat.problem.problem import Problem
from pipesat.runtimes import EXPORTERS
from pipesat.schedule.result import Improvement

Answer: TypeAlias = dict[str, Any]

_MOST_KEPT: Final = 24  # pipelines
QUESTIONS: Final = ("start", "halt", "schedules", "curve", "solve", "frontier", "export")


class Answers:
    """What one run answers; ``output`` is the only folder that files are written to.

    One search runs at a time: the next one ends it, and so does a page that no longer listens.
    """

    def __init__(self, begin: Answer, output: Path | None) -> None:
        exports = [] if output is None else ["solve", "frontier", *EXPORTERS]
        self.start = {"begin": begin, "numbers": NUMBERS, "exports": exports}
        self.output, self.known = output, dict[tuple[Any, str], Known]()
        self.stop, self.searching = threading.Event(), threading.Lock()

    def answer(self, question: str, stated: Answer) -> Answer | Iterator[bytes]:
        """Answer one of ``QUESTIONS``; a search yields lines of JSON, the last one is its answer.

        Raises
        ------
        BadInput, NotApplicable, Infeasible
            If what is stated is no problem, or cannot be exported.
        """
        if question == "halt":
            self.stop.set()
            return {}
        if question == "start":
            return self.start | {"output": self.output and str(self.output)}
        require(isinstance(stated, dict), "expected an object", value=stated)
        problem = problem_of(stated)
        objective: Any = str(stated.get("objective", "makespan"))
        key = (objective, at_cap(problem, None).sha256)
        known = self.known.setdefault(key, Known(problem, objective))
        if len(self.known) > _MOST_KEPT:
            del self.known[next(iter(self.known))]
        if question == "curve":
            return {"curve": known.document(problem)}
        if question in ("schedules", "export"):
            case = known.compared(problem)
            shown = question == "schedules"
            return _shown(case, known) if shown else self._export(stated, known, case)
        search = known.search if question == "solve" else known.search_curve
        return self._lines(problem, known, partial(search, time_limit=stated.get("seconds")))

    def _export(self, stated: Answer, known: Known, case: Comparison) -> Answer:
        """Write what the command of this name would; of a format, what ``export`` would.

        Each into a folder of its own: other orders have files of the same names.
        """
        to, name = str(stated.get("to")), stated.get("schedule")
        chosen = [row.schedule for row in case.rows if row.name == name and row.schedule]
        notes: list[str] = []
        if self.output is None:
            raise BadInput("expected a folder to write to: start with `pipesat explore -o DIR`")
        folder = self.output / to
        if to == "solve":
            notes = [write_result_folder(folder, case.result, []).told]
        elif to == "frontier" and known.frontier is not None:
            known.frontier.save(folder)
        elif to != "frontier" and chosen:
            notes = [*export(case.problem, chosen[0], to, f"{folder}/").notes]
        else:
            raise BadInput("expected a curve that was searched, or a schedule of this problem")
        return {"folder": str(folder), "files": sorted(os.listdir(folder)), "notes": notes}

    def _lines(
        self, problem: Problem, known: Known, search: Callable[..., None]
    ) -> Iterator[bytes]:
        """Run a search in a thread of its own, and yield what it tells."""
        self.stop.set()
        self.stop = stop = threading.Event()
        news: SimpleQueue[Answer] = SimpleQueue()

        def heard(one: Improvement) -> None:
            about = {"seconds": one.seconds, "source": tables.plain(one.source)}
            news.put(_standing(problem, one.standing) | about)

        def answer() -> Answer:
            search(problem, stop=stop, listener=heard)
            return _shown(known.compared(problem), known) | {"curve": known.document(problem)}

        def run() -> None:
            with self.searching:
                news.put({"done": guarded(answer)})

        threading.Thread(target=run, daemon=True).start()
        try:
            event: Answer = {}
            while "done" not in event:
                try:
                    event = news.get(timeout=0.25)
                except Empty:
                    event = {"doing": tables.plain(being_done())}
                yield json.dumps(event).encode() + b"\n"
        finally:
            stop.set()


def guarded(work: Callable[[], Any]) -> Any:
    """Return an answer, or what is wrong with the question."""
    try:
        return work()
    except Exception as error:  # of a bug, too: the page waits for an answer
        if isinstance(error, PipesatError):
            return {"error": tables.plain(error, 600)}
        traceback.print_exc()
        return {"error": tables.plain(f"internal error, please report it: {error!r}", 600)}


def _standing(problem: Problem, standing: Standing) -> Answer:
    return {
        "value": standing.value,
        "bound": standing.bound,
        "shown": [
            tables.time(problem, standing.value),
            tables.time(problem, standing.bound, rounded if standing.proven else rounded_down),
            standing.gap_text(),
        ],
    }


def _shown(case: Comparison, known: Known) -> Answer:
    """Return what the page shows of all schedules of a problem."""
    result, problem = case.result, case.problem
    data, memory = case_data(case, 8 * LARGEST), tables.knows_memory(case)
    return _standing(problem, result.standing) | {
        "data": data,
        "memory": memory,
        "legend": legend(problem, data, memory=memory),
        "name": tables.plain(problem.name),
        "lead": lead(result),
        "facts": [(label, tables.plain(text, 900)) for label, text in result.facts() if text],
        "rows": [
            tables.line_of(row, problem) | {"value": row.value(result.objective)}
            for row in tables.ordered(case)
            if row.schedule is not None
        ],
        "leftOut": tables.left_out(case),
        "searched": problem.sha256 in known.results,
        "proven": result.standing.proven,
        "verdict": result.standing.verdict,
        "finder": "" if result.schedule is None else tables.plain(result.schedule.source),
    }
