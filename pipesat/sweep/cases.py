"""The cases of a sweep: one solve each, known by the digest of what is solved and how."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.files.problem_file import parse_problem
from pipesat.sweep.spec import SHAPING, SOLVING, Spec


@dataclass(frozen=True)
class Case:
    """One solve.

    Attributes
    ----------
    key
        SHA-256 of the problem's digest and of everything that the solve depends on; of the axes'
        values where there is no problem.
    axes
        What the grid says, by axis; ``None`` where it says nothing.
    solve
        Keyword arguments of :func:`pipesat.workflows.solve.solve`.
    problem_sha256, ops
        Of the problem; ``None`` and 0 where there is none.
    refused
        Why there is no such problem; empty if there is one.
    """

    key: str
    axes: Mapping[str, Any]
    solve: Mapping[str, Any]
    problem_sha256: str | None
    ops: int
    refused: str = ""


def cases_of(spec: Spec) -> Iterator[Case]:
    """Yield every case once, in the order of the file; equal ones of several grids once."""
    found: dict[str, Case] = {}
    for grid in spec.grids:
        for values in itertools.product(*grid.values()):  # the last axis varies fastest
            axes = dict(zip(grid, values, strict=True))
            if axes["placement"] != "loop":
                axes["chunks"] = None
            case = _case(spec, axes)
            found.setdefault(case.key, case)
    yield from found.values()


def document_of(spec: Spec, case: Case) -> dict[str, Any]:
    """Make a case's problem document again: a thousand of them at a time would be too much."""
    return spec.sources[_source(case.axes)]({name: case.axes[name] for name in SHAPING})


def _case(spec: Spec, axes: dict[str, Any]) -> Case:
    solve = {name: axes[name] for name in SOLVING} | {
        "target": None if axes["target"] == "any" else axes["target"],
        "time_limit": float(axes["time_limit"]),
        "workers": spec.workers,
        "deterministic": spec.deterministic,
    }
    shape = {name: axes[name] for name in SHAPING}
    try:
        document = spec.sources[_source(axes)](shape)
        problem = parse_problem(document, "problem")
    except (BadInput, NotApplicable) as error:
        key = _digest({"refused": str(error), "axes": shape, "solve": solve})
        return Case(key, axes, solve, None, 0, str(error))
    key = _digest({"problem": problem.sha256, "solve": solve})
    return Case(key, axes, solve, problem.sha256, problem.op_count)


def _source(axes: Mapping[str, Any]) -> str:
    return str(axes["costs"] if axes["problem"] is None else axes["problem"])


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
