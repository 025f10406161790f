"""One case: a folder, a random source, commands that run, and what turned out to be false."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.campaign.judge import Judged, Truth, exact, lower_bound
from bench.campaign.problems import SMALL, problem_of
from bench.campaign.process import Ran, run_command
from pipesat.kernels import compiled
from tests.oracle.reading import Document, Pipe

FAULTS = ("Traceback (most recent call last)", "internal error")
ANY = (0, 1, 2, 3)


@dataclass
class Case:
    """What commands and judges share. ``violations`` are texts: what was claimed, what is true."""

    kind: str
    seed: int
    folder: Path
    quick: bool = False
    rng: Random = field(init=False)
    violations: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.kind}:{self.seed}")

    @property
    def family(self) -> str:
        """The family of problems that a kind names: ``solve/zeros``."""
        return self.kind.partition("/")[2]

    def problem(self, name: str = "problem.json") -> Document:
        """Draw a problem of the family and write it."""
        document = problem_of(self.family, self.rng)
        self.write(name, document)
        return document

    def objective(self) -> str:
        return self.rng.choice(["makespan", "makespan", "span"])

    def limit(self) -> float:
        """Return a time limit; very short ones too."""
        return self.rng.choice([0.05] if self.quick else [0.05, 0.2, 1, 2, 3])

    def truth(self, document: Document, objective: str, effort: float = 2.0) -> Judged:
        """Return what is known about a problem without pipesat."""
        if self.family in (*SMALL, "scaled"):
            truth = exact(document, objective, effort / 8 if self.quick else effort)
            if truth.exact:
                self.notes.add("exact")
        else:
            truth = Truth(lower_bound(Pipe(document), objective))
        return Judged(document, objective, truth)

    def write(self, name: str, document: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
        path.write_text(text, encoding="utf-8")
        return path

    def expect(self, holds: bool, claim: str) -> bool:
        """Note a violation unless it holds."""
        if not holds:
            self.violations.append(claim)
        return holds

    def run(
        self,
        *words: object,
        codes: Collection[int] = (0,),
        hang: float = 90.0,
        cores: int = 1,
        before: Callable[[], None] | None = None,
    ) -> Ran:
        """Run ``pipesat WORDS`` in the case's folder; a crash, a hang or another code is noted.

        ``before`` is done in the command's process, whose streams are open by then.
        """
        argv = [str(word) for word in words]
        self.commands.append(shlex.join(["pipesat", *argv]))
        number = len(self.commands)
        real, kept = self.rng.random() < 1 / 15, loops_kept()
        ran = run_command(argv, self.folder, number, hang=hang, real=real, before=before)
        said = f"{self.commands[-1]}: "
        if ran.hung:
            self.violations.append(f"{said}hung, killed after {hang:g} s")
        elif any(fault in ran.err for fault in FAULTS):
            self.violations.append(f"{said}a fault: {ran.err.strip().splitlines()[-1]}")
        elif ran.code not in codes:
            last = (ran.err.strip().splitlines() or [""])[-1]
            self.violations.append(f"{said}exit code {ran.code}: {last}")
        limit = limit_of(argv)
        if limit is not None and not ran.hung and loops_kept() == kept:  # else it compiled
            took = ran.cpu / cores
            rest = 15.0 if argv[0] == "compare" else 6.0  # it makes all schedules whole
            self.expect(took < limit + rest, f"{said}took {took:.1f} s of processor time")
        return ran


def loops_kept() -> int:
    """Return how many compiled loops lie in the cache, from which all processes read them."""
    folder = compiled._folder()
    return 0 if folder is None else sum(1 for _ in Path(folder).rglob("*.nbc"))


def limit_of(argv: list[str]) -> float | None:
    """Return the time limit that a command was given, if it is one of seconds.

    ``--deterministic`` counts CP-SAT's own time, which may be much shorter where numbers are large.
    """
    if "--time-limit" not in argv or "--deterministic" in argv:
        return None
    return float(argv[argv.index("--time-limit") + 1])
