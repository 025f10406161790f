"""Many cases, each in a process of its own, for as long as there is time."""

from __future__ import annotations

import json
import os
import shutil
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.campaign.case import Case
from bench.campaign.commands import KINDS
from bench.campaign.process import end_session, fork

HANG = 600.0
"""Seconds after which a case itself is killed; its commands are much earlier."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended; ``exact`` if its optimum was known."""

    kind: str
    seed: int
    violations: list[str]
    commands: list[str]
    exact: bool
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.seed}"


def folder_of(home: Path, kind: str, seed: int) -> Path:
    return home / f"{kind.replace('/', '-')}-{seed}"


def run_case(kind: str, seed: int, home: Path, quick: bool = False) -> Outcome:
    """Run one case in its folder; the folder stays, with what was run and what is false."""
    folder = folder_of(home, kind, seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin, case = time.monotonic(), Case(kind, seed, folder, quick)
    try:
        KINDS[kind](case)
    except Exception:
        case.violations.append(f"the campaign itself: {traceback.format_exc()}")
    outcome = Outcome(
        kind, seed, case.violations, case.commands, "exact" in case.notes, time.monotonic() - begin
    )
    replay = {"replay": f"python -m bench.campaign.run --case {outcome.name}{' --quick' * quick}"}
    text = json.dumps(replay | asdict(outcome), indent=1, ensure_ascii=False)
    (folder / "case.json").write_text(text + "\n", encoding="utf-8")
    return outcome


def outcome_in(folder: Path, kind: str, seed: int, why: str) -> Outcome:
    """Read what a case's process has written, or say why it has not."""
    path = folder / "case.json"
    if not path.exists():
        return Outcome(kind, seed, [f"the case's process {why}"], [], False, 0.0)
    found = json.loads(path.read_text(encoding="utf-8"))
    found.pop("replay")
    return Outcome(**found)


def run_all(
    cases: Iterator[tuple[str, int]], home: Path, workers: int, quick: bool = False
) -> Iterator[Outcome]:
    """Run cases, some at a time, and yield how each ended; folders of clean ones go."""
    running: dict[int, tuple[str, int, float]] = {}
    try:
        while True:
            while len(running) < workers:
                following = next(cases, None)
                if following is None:
                    break
                kind, seed = following
                pid = fork(partial(_case, kind, seed, home, quick))
                running[pid] = (kind, seed, time.monotonic())
            if not running:
                return
            yield from _finished(running, home)
            time.sleep(0.005)
    finally:
        for pid in running:
            end_session(pid)


def _case(kind: str, seed: int, home: Path, quick: bool) -> None:
    run_case(kind, seed, home, quick)


def _finished(running: dict[int, tuple[str, int, float]], home: Path) -> Iterator[Outcome]:
    for pid, (kind, seed, begin) in list(running.items()):
        done, status = os.waitpid(pid, os.WNOHANG)
        why = f"ended with status {status}"
        if not done and time.monotonic() - begin > HANG:
            end_session(pid)
            done, why = pid, f"was killed after {HANG:g} s"
        if done:
            del running[pid]
            folder = folder_of(home, kind, seed)
            outcome = outcome_in(folder, kind, seed, why)
            if not outcome.violations:
                shutil.rmtree(folder, ignore_errors=True)
            yield outcome
