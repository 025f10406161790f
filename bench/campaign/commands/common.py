"""What the commands' cases share: random options, and the truth about a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from campaign.case import Case
from campaign.judge.bounds import lower_bound, never_fits
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth, exact
from campaign.judge.reading import load, pipe_of
from campaign.problems import PROBLEMS

FAST = (
    "chain",
    "chunks",
    "routes",
    "zero",
    "zero-chunks",
    "held-zero",
    "held-zero-modes",
    "zero-modes",
    "tight",
    "overlap",
    "pairs",
    "scaled",
    "huge",
    "classes",
    "routes-classes",
    "modes",
    "classes-modes",
    "mixture",
)


def family_of(case: Case) -> str:
    """Return the family of problems that a kind names: ``solve/zero``."""
    return case.kind.partition("/")[2]


def a_problem(case: Case) -> dict[str, Any]:
    """Draw the case's problem and write it."""
    document = PROBLEMS[family_of(case)](case.rng)
    case.write("problem.json", document)
    return document


def truth_of(case: Case, document: dict[str, Any], objective: str, seconds: float = 4.0) -> Judged:
    """Return what is known about a problem without pipesat."""
    if family_of(case) in FAST:
        truth = exact(pipe_of(document), objective, seconds / 8 if case.quick else seconds)
        if truth.exact:
            case.notes.add("exact")
    else:
        pipe = pipe_of(document)
        truth = Truth(lower_bound(pipe, objective), feasible=False if never_fits(pipe) else None)
    return Judged(document, objective, truth)


def an_objective(case: Case) -> str:
    return case.rng.choice(["makespan", "makespan", "span"])


def a_limit(case: Case) -> float:
    """Return a time limit; very short ones too."""
    return case.rng.choice([0.05] if case.quick else [0.05, 0.2, 1, 2, 3])


def schedule_in(path: Path) -> Any:
    """Return a schedule document, ``None`` if there is no file."""
    return load(path) if path.exists() else None
