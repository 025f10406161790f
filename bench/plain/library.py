"""best_known.json: the best value and bound known of every problem, each with what backs it.

A record is an amount, who or what it is by, its date, and one of four backings:

    schedule   a file in schedules/ that the checker passes and that has this value
    baseline   a hand-written schedule of pipesat, made again and checked at every collection
    formula    a bound in closed form, calculated again likewise
    rerun      a row of the benchmark: the figure of a solve whose limit and seed are given

A value always has a schedule, kept or made by hand; a bound may rest on a rerun.
The digest of the problem stands beside its records; they count for the problem of that digest only.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.check.checker import check
from pipesat.core.atomic import write_file
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import read_problem
from pipesat.schedule.schedule import Objective, Schedule
from pipesat.schedule.schedule_file import schedule_bytes
from pipesat.schedule.timing import time_order

HERE = Path(__file__).resolve().parent
FORMAT = "pipesat.best-known/1"
OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")

Backing = dict[str, Any]
Kind = Literal["value", "bound"]
KINDS: tuple[Kind, ...] = ("value", "bound")


class Contradiction(Exception):
    """A value below a bound: one of the two is wrong, and nothing may be recorded."""


@dataclass(frozen=True)
class Record:
    """An amount in the problem's time unit, and where it comes from."""

    amount: int
    by: str
    date: str
    backed_by: Backing

    @property
    def checkable(self) -> bool:
        """Whether anybody can check it without searching."""
        return "rerun" not in self.backed_by


class Library:
    """The problems of a folder and what is known of them."""

    def __init__(self, folder: Path = HERE) -> None:
        self.folder = folder
        self.names = sorted(path.stem for path in (folder / "problems").glob("*.json"))
        self.dropped: list[str] = []
        self._records: dict[tuple[str, Objective, Kind], Record] = {}
        self._problems: dict[str, Problem] = {}
        self._load()

    def problem(self, name: str) -> Problem:
        """One problem, read and checked."""
        if name not in self._problems:
            path = self.folder / "problems" / f"{name}.json"
            self._problems[name] = read_problem(path)
        return self._problems[name]

    def name_of(self, problem: Problem) -> str | None:
        """The name of a problem that is in the library, by its digest."""
        own = (n for n in self.names if self.problem(n).sha256 == problem.sha256)
        return next(own, None)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the lines ``name digest`` of all problems: what a citation names."""
        lines = (f"{name} {self.problem(name).sha256}\n" for name in self.names)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def record(self, name: str, objective: Objective, kind: Kind) -> Record | None:
        """The best known value or bound, if there is one."""
        return self._records.get((name, objective, kind))

    def drop(self, name: str, objective: Objective, kind: Kind, why: str) -> None:
        """Forget a record."""
        del self._records[name, objective, kind]
        self.dropped.append(f"{name}: {kind} of the {objective} dropped: {why}")

    def offer(self, name: str, objective: Objective, kind: Kind, new: Record) -> bool:
        """Take a record if it is better than the one there is.

        An amount that is as good replaces one that only a rerun backs.

        Raises
        ------
        Contradiction
            If the value would be below the bound.
        """
        old = self.record(name, objective, kind)
        if old is not None:
            gain = new.amount - old.amount if kind == "bound" else old.amount - new.amount
            if gain < 0 or (gain == 0 and (old.checkable or not new.checkable)):
                return False
        self._records[name, objective, kind] = new
        value, bound = (self.record(name, objective, kind) for kind in KINDS)
        if bound is not None and value is not None and value.amount < bound.amount:
            raise Contradiction(
                f"{name}: {objective} {value.amount} by {value.by} is below the bound "
                f"{bound.amount} by {bound.by}: one of them is wrong, please report both"
            )
        return True

    def offer_schedule(
        self,
        name: str,
        schedule: Schedule,
        by: str,
        date: str,
        objectives: Iterable[Objective] = OBJECTIVES,
    ) -> list[str]:
        """Value an order for one objective or both; keep it as a file where it is better.

        Returns what was recorded, a line each. The schedule must have passed the checker.

        Raises
        ------
        Contradiction
            If it is below a bound; then nothing is recorded.
        """
        problem = self.problem(name)
        before = dict(self._records)
        taken: list[tuple[Path, bytes, str]] = []
        try:
            for objective in objectives:
                self.add_formula(name, objective, date)
                timed = time_order(problem, schedule.order, objective, source=schedule.source)
                if violations := check(problem, timed):
                    raise Contradiction(f"{name}: valid as given, not timed anew: {violations[0]}")
                path = self.schedule_path(name, objective)
                backing = {"schedule": path.relative_to(self.folder).as_posix()}
                record = Record(timed.value(objective), by, date, backing)
                if self.offer(name, objective, "value", record):
                    line = f"{name}: {objective} {record.amount} recorded"
                    taken.append((path, lzma.compress(schedule_bytes(problem, timed)), line))
        except Contradiction:
            self._records = before
            raise
        for path, data, _ in taken:
            path.parent.mkdir(exist_ok=True)
            write_file(path, data)
        return [line for *_, line in taken]

    def add_formula(self, name: str, objective: Objective, today: str) -> None:
        """Offer the bound in closed form: it backs itself."""
        bound = closed_form_bound(self.problem(name), objective)
        old = self.record(name, objective, "bound")
        date = old.date if old is not None and old.amount == bound.value else today
        record = Record(bound.value, bound.source, date, {"formula": bound.source})
        self.offer(name, objective, "bound", record)

    def schedule_path(self, name: str, objective: Objective) -> Path:
        """Where the schedule of a record lies."""
        return self.folder / "schedules" / f"{name}.{objective}.json.xz"

    def _load(self) -> None:
        path = self.folder / "best_known.json"
        if not path.exists():
            return
        document = json.loads(path.read_text())
        if document.get("format") != FORMAT:
            raise SystemExit(f"{path}: not of the format {FORMAT}")
        for name, entry in document["problems"].items():
            if name not in self.names or entry["sha256"] != self.problem(name).sha256:
                self.dropped.append(f"{name}: all records dropped: the problem is another one now")
                continue
            for objective in OBJECTIVES:
                for kind, record in entry.get(objective, {}).items():
                    self._records[name, objective, kind] = Record(**record)

    def save(self) -> None:
        """Write best_known.json, and remove schedules that back nothing any more."""
        lines = []
        for name in self.names:
            entry: dict[str, Any] = {"sha256": self.problem(name).sha256}
            for objective in OBJECTIVES:
                found = {kind: self.record(name, objective, kind) for kind in KINDS}
                own = {kind: asdict(record) for kind, record in found.items() if record}
                entry |= {objective: own} if own else {}
            lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")
        head = json.dumps({"format": FORMAT, "digest": self.digest})[:-1]
        body = ",\n".join(lines)
        text = f'{head}, "problems": {{\n{body}\n}}}}\n'  # a line per problem, to see what changes
        write_file(self.folder / "best_known.json", text.encode())
        backing = {record.backed_by.get("schedule") for record in self._records.values()}
        for path in (self.folder / "schedules").glob("*.json.xz"):
            if path.relative_to(self.folder).as_posix() not in backing:
                path.unlink()
