"""The answer to a whole question with its folder: configuration, order and every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipesat.advise.advice import Advised
from pipesat.advise.advice_table import megatron_export, needed_without
from pipesat.advise.picture import plan_pictures
from pipesat.advise.table_rows import Row, options_of, published_in, stages_text
from pipesat.compare.report.study import report
from pipesat.compare.result import Result
from pipesat.compare.result_folder import result_files
from pipesat.core.claims import Standing
from pipesat.core.folder import json_file, write_folder
from pipesat.runtimes import EXPORTERS, FILE_NAMES
from pipesat.runtimes.knobs import knobs_of
from pipesat.runtimes.options import Options
from pipesat.schedule.result import Baseline, Solution
from pipesat.schedule.schedule_file import schedule_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN: Final = "nothing-by-hand"
"""Folder of the best row that is exported and run as it is."""


@dataclass(frozen=True, repr=False, slots=True)
class Advice(Advised):
    """The answer with its files: ``save(folder)`` it, ``plot()`` it."""

    def plot(self) -> Figure | None:
        """Draw our plan's stages, as ``plan.plot()``."""
        return self.plan.plot()

    def save(self, folder: str | Path, log: Sequence[str] = ()) -> None:
        """Write what ``pipesat advise -o`` writes; ``log`` are lines of ``solver.log``.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        Contradiction
            If the answer contradicts itself; then the schedule is written all the same.
        """
        folder, question, row, easy = Path(folder), self.question, self.chosen, self.plain
        files = {"layers.json": question.layers.file()}
        for name, shown in self.files.items():
            files[f"{name}.problem.json"] = json_file(shown.problem.document)
            files[f"{name}.json"] = schedule_bytes(shown.problem, shown.schedule)
        made = None
        if row is not None:
            for_torch = question.any_order and not question.record.in_python
            made = result_files(folder, result_of(self, row), log, orders=for_torch)
            files |= made.files | _configuration(self, row)
        if easy is not None:
            plain = {
                "problem.json": json_file(easy.problem.document),
                "schedule.json": schedule_bytes(easy.problem, easy.schedule),
                **_configuration(self, easy, PLAIN),
            }
            files |= {f"{PLAIN}/{name}": data for name, data in plain.items()}

        def pictures() -> dict[str, bytes]:
            if made is None or row is None:
                return {}
            drawn = made.pictures() | {"report.html": report(folder, baselines=False).html}
            # of the split that is advised: the one that the plan found may be another
            advised = replace(row.candidate, schedules=[row.schedule])
            return plan_pictures(question.layers, advised, self.standing) | drawn

        write_folder(
            folder,
            files,
            claims=lambda: {"advice.json": json_file(self.document())},
            pictures=pictures,
        )


def with_knobs(advice: Advice) -> Advice:
    """Return the answer with the numbers that the runtime asks for beside the chosen order."""
    question, row = advice.question, advice.chosen
    if row is None:
        return advice
    handed = Options(version=question.release if "version" in question.record.takes else None)
    knobs = knobs_of(question.record.name, row.problem, row.schedule, handed)
    return replace(advice, knobs=tuple(knobs))


def _configuration(advice: Advised, row: Row, place: str = "") -> dict[str, bytes]:
    """What the runtime is handed: its file, with what belongs beside it; where it is to lie."""
    question, file = advice.question, Path(FILE_NAMES[advice.question.record.name])
    if question.any_order:
        options = replace(
            options_of(question, row), remark=remark_of(advice, row), output=Path(place, file)
        )
        exported = EXPORTERS[question.record.name](row.problem, row.schedule, options)
    else:
        exported = megatron_export(question, row)
    beside = {file.with_suffix(suffix).name: data for suffix, data in exported.beside.items()}
    return {file.name: exported.data, **beside}


def result_of(advice: Advised, row: Row) -> Result:
    """Return a row as the result of a solve, with the best that is proven of its problem."""
    own, question = advice.plan.result, advice.question
    bounds = [row.candidate.bound, *([] if advice.bound is None else [advice.bound])]
    bound = max(bounds, key=lambda bound: bound.value)
    known = (x for x in advice.rows if x.runs and published_in(x.name))
    same = [x for x in known if x.problem == row.problem]
    best = min(same, key=lambda other: other.makespan, default=None)
    answer = Solution(
        problem=row.problem,
        status=Standing(row.makespan, bound.value, of="this row").status,
        objective="makespan",
        schedule=row.schedule,
        bound=bound,
        baseline=None if best is None else Baseline(best.name, best.makespan),
        wall_s=advice.seconds,
        seed=0 if own is None else own.seed,
        workers=1 if own is None else own.workers,
        versions={} if own is None else own.versions,
        target=question.runtime if question.any_order else None,
        release=question.release if question.any_order else None,
    )
    return Result.of(answer)


def remark_of(advice: Advised, row: Row) -> str:
    """Return what a row's configuration cannot say, for its comments: whose order it is, too."""
    published = published_in(row.name)
    whose = f"The order is {row.name}: {published}." if published else ""
    return " ".join(filter(None, (_to_do(advice, row), whose)))


def _to_do(advice: Advised, row: Row) -> str:
    """What has to be done besides, and what times count on; empty: nothing."""
    plain = row is advice.chosen and advice.plain is not None
    there = f" The best found that needs nothing by hand is in {PLAIN}/." if plain else ""
    if not row.again:
        by_hand = f"{row.by_hand[:1].upper()}{row.by_hand[1:]}"
        return f"{by_hand}; times of this order count on it.{there}" if by_hand else ""
    need = needed_without(advice.question, row)
    counts = f"times and memory of this order count on it{f' ({need})' if need else ''}."
    if not row.by_hand:
        return f"Full activation checkpointing is set: {counts}" if row.setting else ""
    return (
        f"Checkpoint {stages_text(row.again)} in your own code, every layer of each, and no other "
        f"stage: {counts} Their backwards are never split; what is said here against activation "
        f"checkpointing is meant for the other stages: the switch for all of them is off.{there}"
    )
