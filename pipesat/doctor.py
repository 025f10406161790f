"""Does pipesat work here: the versions of what it needs, and a solve of a second or two."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pipesat.core.showing import Displayed, Facts, Table, table_of

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from pipesat.problem.problem import Problem

Finding: TypeAlias = Literal["ok", "missing", "FAILED"]
Part: TypeAlias = Literal["versions", "extras", "self-check"]

DEVELOPMENT: Final = frozenset({"test", "check", "docs", "browser"})  # extras for pipesat itself
TIME_LIMIT: Final = 8.0  # of counted steps: a busy machine, or a first solve that compiles, passes
OPTIMUM: Final = 36
"""Least makespan: no hand-written schedule reaches it and no formula proves it (38 and 34), so the
search has to find it and CP-SAT to prove it. A test holds it against an independent model."""


@dataclass(frozen=True)
class CheckLine:
    """One answer: ``missing`` is an extra that pipesat works without, ``FAILED`` is a fault.

    ``command`` is what to type to mend it, ``None`` where there is nothing to mend or no command
    that does it.
    """

    part: Part
    name: str
    status: Finding
    detail: str
    command: str | None = None


@dataclass(frozen=True, repr=False)
class Diagnosis(Displayed):
    """All lines."""

    lines: tuple[CheckLine, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; an extra may be missing."""
        return all(line.status != "FAILED" for line in self.lines)

    def facts(self) -> Facts:
        """Return how many lines failed."""
        failed = sum(line.status == "FAILED" for line in self.lines)
        return [("Result", f"{failed} FAILED" if failed else "pipesat works here")]

    def tables(self) -> Iterator[Table]:
        """Yield the lines."""
        yield table_of(self.records())

    def records(self) -> list[dict[str, Any]]:
        """Return a row per line."""
        return [
            {"name": line.name, "status": line.status}
            | {"detail": "; run: ".join(filter(None, (line.detail, line.command)))}
            for line in self.lines
        ]

    def document(self) -> dict[str, Any]:
        """Return the report ready for JSON."""
        return {"ok": self.ok, **asdict(self)}


def doctor() -> Diagnosis:
    """Look whether pipesat works here: versions, extras, and a solve.

    Nothing is raised. Packages are imported, because one that is installed may still not load.
    """
    return Diagnosis((*package_lines(), solve_line()))


def package_lines() -> Iterator[CheckLine]:
    """Yield a line for Python, pipesat, each package it needs, and each package of an extra.

    What is needed is read from pipesat's own metadata, so that it is said in one place only.
    """
    yield CheckLine(
        "versions", "python", "ok", f"{platform.python_version()} on {platform.platform()}"
    )
    try:
        from packaging.requirements import Requirement

        yield CheckLine("versions", "pipesat", "ok", importlib.metadata.version("pipesat"))
        extras = importlib.metadata.metadata("pipesat").get_all("Provides-Extra") or ()
        needs = [Requirement(text) for text in importlib.metadata.requires("pipesat") or ()]
    except ImportError as error:  # PackageNotFoundError is one
        reason = f"{error}, so nothing is known of what it needs"
        yield CheckLine("versions", "pipesat", "FAILED", reason, "pip install . in the clone")
        return
    for extra in ("", *(one for one in extras if one not in DEVELOPMENT)):
        own = [n for n in needs if n.marker is None or n.marker.evaluate({"extra": extra})]
        yield from (line_of(need, extra) for need in own)
        needs = [need for need in needs if extra or need not in own]  # none of the core twice


def line_of(need: Requirement, extra: str = "") -> CheckLine:
    """Judge a package; none of an extra's, or too old a one, is no fault of the installation."""
    name = need.name if extra in ("", need.name) else f"{need.name} ({extra})"
    part: Part = "extras" if extra else "versions"
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    wanted = shlex.quote(f"{need.name}{extras}{need.specifier}")
    try:
        version = importlib.metadata.version(need.name)
        wrong = f"{version} is installed, pipesat needs {need.specifier}"
    except importlib.metadata.PackageNotFoundError:
        version, wrong = "", "not installed"
    if not version or not need.specifier.contains(version, prereleases=True):
        return CheckLine(
            part, name, "missing" if extra else "FAILED", wrong, f"pip install {wanted}"
        )
    try:
        importlib.import_module(need.name.lower().replace("-", "_"))
    except Exception as error:  # a broken installation may raise anything
        again = f"pip install --force-reinstall --no-deps {wanted}"
        reason = f"does not load: {type(error).__name__}: {error}"
        return CheckLine(part, name, "FAILED", reason, again)
    return CheckLine(part, name, "ok", version)


def known_problem() -> Problem:
    """Return a problem of which :data:`OPTIMUM` is the least makespan."""
    from pipesat.problem.problem import Device, Problem, Stage

    held: dict[str, Any] = {"held_after_F": 2, "held_after_B": 1}
    first = Stage(0, 1, 2, 3, backward="fused", **held)
    stages = [first, Stage(1, 1, 4, 1, **held), Stage(2, 2, 1, 3, **held)]
    return Problem.from_stages(stages, 4, devices=[Device(memory=4)] * 3, name="doctor")


def solve_line() -> CheckLine:
    """Solve a problem whose optimum is known; the checker looks at the answer."""
    try:
        from pipesat.check.checker import check
        from pipesat.compare.solve import solve

        problem = known_problem()
        result = solve(problem, time_limit=TIME_LIMIT, workers=1, deterministic=True)
        broken = result.schedule is None or check(problem, result.schedule)
        took = f"{result.wall_s:.1f} s"
    except Exception as error:  # whatever it is, it belongs into the report
        return CheckLine("self-check", "solve", "FAILED", f"{type(error).__name__}: {error}")
    if broken or {result.value, result.lower_bound} != {OPTIMUM}:
        return CheckLine(
            "self-check",
            "solve",
            "FAILED",
            f"value {result.value} and bound {result.lower_bound} after {took}, expected {OPTIMUM} "
            f"for both and a valid schedule ({broken or result.status}): the search does not work "
            "here",
        )
    return CheckLine("self-check", "solve", "ok", f"makespan {OPTIMUM} proven in {took}")
