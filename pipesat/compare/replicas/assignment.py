"""An assignment: its file, and what a user is told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from pipesat.core.amounts import exact_text
from pipesat.core.atomic import digest
from pipesat.core.claims import Bound, Standing, against, change, plural
from pipesat.core.complaint import validated
from pipesat.core.errors import BadInput, require
from pipesat.core.showing import Column, Displayed, Facts, Line, Table
from pipesat.core.strict_json import Count, StrictModel
from pipesat.problem.problem_checks import changed
from pipesat.schedule.schedule import Objective

if TYPE_CHECKING:
    from pipesat.compare.replicas.dealer import TriedDeal
    from pipesat.problem.problem import Problem, Route

FORMAT: Final = "pipesat.assignment/1"
OURS: Final = "this assignment"
_SHOWN: Final = 64  # sequences
_INSTEAD: Final = (
    "deal without a limit, by with_memory(None), then solve each of `problems` within the memory"
)


@dataclass(frozen=True, repr=False)
class Assignment(Displayed):
    """Which sequence goes to which replica and microbatch, and when each replica is done.

    ``replicas`` has, per replica, its microbatches in the order in which they enter, each a list of
    sequence numbers; it is empty if none was found that fits. What a file does not have,
    ``any_bound``, ``rules``, ``asked``, the problem that every replica has a copy of, and
    ``tokens`` of sequences, ``quadratic`` as asked, is there after ``balance``; ``ordered`` is the
    text of the problem in this order, where it is one of section 8.

    Raises
    ------
    Contradiction
        If the bound is above the value.
    """

    problem_sha256: str
    schedule: str
    lengths: Mapping[str, Any] | None
    replicas: Sequence[Sequence[Sequence[int]]]
    makespans: Sequence[int]
    lower_bound: int | None
    lower_bound_source: str
    seed: int | None = None
    time_unit: str = ""
    objective: Objective = "makespan"
    any_bound: Bound | None = None
    rules: Sequence[TriedDeal] = ()
    asked: Problem | None = field(default=None, compare=False)
    tokens: Sequence[int] = ()
    quadratic: Fraction | float = 0
    ordered: str = ""

    def __post_init__(self) -> None:
        Standing(self.value, self.lower_bound, of="the slowest replica")
        Standing(self.value, self.any_bound and self.any_bound.value, of="the slowest replica")

    @property
    def value(self) -> int | None:
        """The slowest replica's makespan, in the problem's time unit; ``None``: none fits."""
        return max(self.makespans, default=None)

    @property
    def standing(self) -> Standing:
        """What is proven of the value."""
        return Standing(self.value, self.lower_bound)

    @property
    def problems(self) -> list[Problem]:
        """The problem of each replica: its microbatches as dealt, their order free to choose.

        Solve each: the assignment is made under one schedule, and another may be better.

        Raises
        ------
        BadInput
            If the assignment comes from a file, none was found that fits, or no problem file can
            state a microbatch of several sequences.
        """
        from pipesat.compare.replicas.replay import microbatches_of_packs

        asked, about = self.asked, self.lengths
        if asked is None:
            raise BadInput(
                "expected what balance returned: a file has no problem", where="problems"
            )
        require(self.replicas, self._none_fits, where="problems")
        if about is not None:
            lists = (
                microbatches_of_packs(
                    asked,
                    [[self.tokens[n] for n in part] for part in row],
                    about["reference"],
                    self.quadratic,
                )
                for row in self.replicas
            )
            return [asked.with_microbatches(own, order="same") for own in lists]
        (route,) = asked.routes
        return [_with_some(asked, route, [n for (n,) in row]) for row in self.replicas]

    def facts(self) -> Facts:
        """Return the step's time, what it gains, the bounds, and how even the replicas are."""
        value = self.value
        said = partial(exact_text, unit=self.time_unit)
        any_bound = self.any_bound
        whatever = "" if any_bound is None else f"{said(any_bound.value)} ({any_bound.source})"
        least = "unknown" if self.lower_bound is None else said(self.lower_bound)
        bound = f"{least} ({self.lower_bound_source})"
        if value is None:
            instead = _INSTEAD if self.asked and self.asked.within_memory else ""
            return [("Step", self._none_fits), ("Bound", bound), ("Instead", instead)]
        rules = {row.name: row.value for row in self.rules if row.value is not None}
        named = {**dict([*rules.items()][:1]), min(rules, key=rules.__getitem__, default=""): 0}
        gains = [against(value, rules[name], name) for name in named if name]
        parts = [len(part) for row in self.replicas for part in row]
        packed = f", of {min(parts)} to {max(parts)} sequences" if max(parts) > 1 else ""
        longest = ""
        if self.tokens and max(parts) > 1:
            filled = max(sum(self.tokens[n] for n in part) for row in self.replicas for part in row)
            longest = f"at most {filled} tokens in a microbatch"
        fastest = said(min(self.makespans))
        mean = round(sum(self.makespans) / len(self.makespans))
        then = "in Python, solve each of `problems`: another schedule may be shorter"
        count = len(parts) // len(self.replicas)
        each = f"{count} {plural(count, 'microbatch', 'es')} each{packed}"
        return [
            ("Step", f"{said(value)} under {self.schedule}"),
            ("Gain", ", ".join(gains)),
            ("Proof", f"{self.standing.verdict}: no assignment is below {bound}"),
            ("Any schedule", whatever and f"none is below {whatever}"),
            ("Replicas", f"{len(self.replicas)} with {each}"),
            ("Evenness", f"the mean replica takes {said(mean)}, the fastest {fastest}"),
            ("Longest", longest),
            ("Sequences", self._sequences),
            ("Then", "" if self.asked is None else then),
        ]

    @property
    def _none_fits(self) -> str:
        within = self.asked.within_memory if self.asked else ""
        return f"no assignment was found that fits under {self.schedule}{within}"

    @property
    def _sequences(self) -> str:
        """Say which sequence goes where."""
        if sum(len(part) for row in self.replicas for part in row) > _SHOWN:
            return "`replicas` has the numbers in each microbatch of each replica"
        each = (" ".join("+".join(map(str, part)) for part in row) for row in self.replicas)
        rows = (f"replica {number}: {row}" for number, row in enumerate(each))
        return f"{', '.join(rows)} (numbered from 0)"

    def tables(self) -> Iterator[Table]:
        """Yield a line per rule, the best first."""
        if not self.rules:
            return
        value, unit = self.value, self.time_unit
        rows = [(row.value, row.name, row.why_not) for row in self.rules]
        rows.append((value, OURS, "" if value is not None else "none found that fits"))
        rows.sort(key=lambda row: (row[0] is None, row[0] or 0, row[1] != OURS))
        lines: list[Line] = []
        for time, name, why_not in rows:
            gap = Standing(time, self.lower_bound).gap_text()
            differs = ""
            if time is not None and value is not None and name != OURS:
                differs = change(value, time)
            lines.append(
                [
                    name,
                    "-" if time is None else exact_text(time, unit).split()[0],
                    gap,
                    differs or why_not,
                ]
            )
        shown = exact_text(0, unit).partition(" ")[2]  # of what stands below
        slowest = Column(f"slowest replica ({shown})" if shown else "slowest replica")
        heads = (Column("dealt", number=False), slowest, Column("gap to bound"))
        yield Table([*heads, Column("this assignment", number=False)], lines)

    def records(self) -> list[dict[str, Any]]:
        """Return a row per rule, and one of this assignment."""
        rows = [*((row.name, row.value, row.why_not or None) for row in self.rules)]
        names = ("name", "value", "why_not")
        return [dict(zip(names, row, strict=True)) for row in [(OURS, self.value, None), *rows]]

    def file(self) -> dict[str, Any]:
        """Return the assignment file's document."""
        return {
            "format": FORMAT,
            "problem_sha256": self.problem_sha256,
            "schedule": self.schedule,
            "lengths": None if self.lengths is None else dict(self.lengths),
            "replicas": [[[*part] for part in row] for row in self.replicas],
            "objective": self.objective,
            "value": self.value,
            "lower_bound": self.lower_bound,
            "lower_bound_source": self.lower_bound_source,
            "gap": self.standing.gap,
            "makespans": [*self.makespans] if self.objective == "makespan" else None,
            "seed": self.seed,
            "time_unit": self.time_unit,
        }

    def document(self) -> dict[str, Any]:
        """Return the file's document, and what else is known."""
        bound = self.any_bound
        return self.file() | {
            "status": self.standing.status,
            "any_schedule": bound and {"lower_bound": bound.value, "source": bound.source},
            "rules": self.records()[1:],
        }

    def save(self, folder: str | Path) -> None:
        """Write ``assignment.json``; of one replica of whole microbatches ``problem.json``, too.

        Without an assignment that fits, nothing is written.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        from pipesat.core.folder import write_folder

        if self.value is None:
            return
        files = {"assignment.json": f"{json.dumps(self.file())}\n".encode()}
        if self.ordered:
            files["problem.json"] = self.ordered.encode()
        write_folder(Path(folder), files)


def _with_some(problem: Problem, route: Route, numbers: Sequence[int]) -> Problem:
    """Return the problem with some of its route's microbatches, in an order that is free."""
    own = [(route.classes or ())[number] for number in numbers]
    used = [*dict.fromkeys(own)]
    listed = replace(
        route,
        microbatches=len(own),
        classes=tuple(map(used.index, own)),
        definitions=tuple(route.definitions[kind] for kind in used),
    )
    return changed(problem, routes=(listed,), order="same")


_Number = Annotated[int, Field(ge=0)]
_Microbatch = Annotated[list[_Number], Field(min_length=1)]
_Replica = Annotated[list[_Microbatch], Field(min_length=1)]


class LengthsRead(StrictModel):
    """What lengths were dealt."""

    sha256: str
    reference: Count
    quadratic: Annotated[float, Field(ge=0, le=1)]
    tokens: Count | None


class AssignmentModel(StrictModel):
    """An assignment file."""

    format: Literal["pipesat.assignment/1"]
    problem_sha256: str
    schedule: str
    lengths: LengthsRead | None
    replicas: Annotated[list[_Replica], Field(min_length=1)]
    objective: Objective = "makespan"
    value: _Number
    lower_bound: _Number | None
    lower_bound_source: str
    gap: float | None
    makespans: list[_Number] | None
    seed: int | None
    time_unit: str = ""


def lengths_read(
    lengths: Sequence[int] | None,
    reference: int | None,
    quadratic: Fraction | float,
    tokens: int | None,
) -> dict[str, Any] | None:
    """Return what a file says of the lengths that were dealt; ``None`` without any."""
    if lengths is None:
        return None
    read = digest(json.dumps([*lengths]).encode())
    about = {"sha256": read, "reference": reference, "quadratic": float(quadratic)}
    return about | {"tokens": tokens}


def parse_assignment(document: object, source: str) -> Assignment:
    """Validate an assignment document.

    Raises
    ------
    BadInput
        With the file, the path of the value, the value and what would be right.
    """
    model = validated(document, AssignmentModel, source)
    numbers = sorted(n for row in model.replicas for part in row for n in part)
    value, makespans = model.value, [model.value] if model.makespans is None else model.makespans
    required = partial(require, source=source)
    required(
        numbers == [*range(len(numbers))],
        f"expected every sequence from 0 to {len(numbers) - 1} exactly once",
        where="replicas",
    )
    required(
        len({*map(len, model.replicas)}) <= 1,
        "expected the same number of microbatches in every replica",
        where="replicas",
    )
    required(
        len(makespans) == len(model.replicas),
        f"{len(makespans)} makespans, expected one per replica",
        where="makespans",
    )
    required(
        max(makespans, default=None) == value,
        "expected the largest of makespans",
        where="value",
        value=value,
    )
    required(
        model.lower_bound is None or model.lower_bound <= value,
        f"expected at most the value {value}",
        where="lower_bound",
        value=model.lower_bound,
    )
    said = model.model_dump(exclude={"format", "value", "gap"})
    return Assignment(**said | {"makespans": makespans})
