"""Folders of results: whoever reads the output, whatever was there, whenever it is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.campaign.case import ANY, Case
from bench.campaign.judge import digest, false_claims, load, schedule_in

LIST = ".pipesat.json"
KILLED = 128 + signal.SIGKILL
COMMANDS: dict[str, tuple[object, ...]] = {
    "solve": ("solve",),
    "compare": ("compare",),
    "frontier": ("frontier", "--caps", "points=2"),
    "min-memory": ("frontier", "--within", "5%"),
}


def streams(case: Case) -> None:
    """A reader that leaves, a full disk or no stream at all: files and exit code are the same."""
    document, rng = case.problem(), case.rng
    full = rng.random() < 0.3
    streams = rng.choice([(2,), (1,), (1, 2)])

    def broken() -> None:
        for number in streams:
            if full:
                os.dup2(os.open("/dev/full", os.O_WRONLY), number)
            elif rng.random() < 0.3:
                os.close(number)
                setattr(sys, {1: "stdout", 2: "stderr"}[number], None)
            else:
                os.dup2(_reader_of(rng.choice([0, 1, 20, 300])), number)

    ran = _run(case, "solve", "problem.json", codes=(0, 2, 3), before=broken)
    case.expect(ran.code != 2 or (full and 1 in streams), "2, but no output was lost")
    _hold(case, document, case.folder / "out", None if ran.code == 2 else ran.code)


def _reader_of(size: int) -> int:
    """Return a pipe's end for writing, whose reader leaves after so many bytes."""
    reads, writes = os.pipe()
    if not os.fork():
        os.close(writes)
        while size > 0 and (taken := len(os.read(reads, size))):
            size -= taken
        os._exit(0)
    os.close(reads)
    return writes


def twice(case: Case) -> None:
    """Of the first command into a folder nothing is left by the second, but what is the user's."""
    rng = case.rng
    case.problem()
    case.problem("other.json")
    out, mine = case.folder / "out", case.folder / "out" / "mine.txt"
    first, second = rng.choice([*COMMANDS]), rng.choice([*COMMANDS])
    ran = _run(case, first, "other.json", codes=(0, 2, 3))
    if ran.code == 0 and rng.random() < 0.5:
        case.run("show", "out", "--html", "out/report.html", codes=(0, 2))
    out.mkdir(exist_ok=True)
    mine.write_text("mine")
    old = _files(out)
    ran = _run(case, second, "problem.json", codes=(0, 2, 3))
    now = _files(out)
    if ran.code == 2:
        case.expect(now == old, f"refused, but changed {sorted(now.items() ^ old.items())}")
        return
    written = {path: stamp for path, stamp in now.items() if stamp != old.get(path)}
    left = sorted(str(path) for path in now.keys() - written.keys() - {mine})
    case.expect(mine in now and mine not in written, "the user's file is gone")
    case.expect(not left, f"{second} after {first} leaves {left}")


def kill(case: Case) -> None:
    """Killed at any change of a folder, a command leaves one result there, the old or the new."""
    rng, out = case.rng, case.folder / "out"
    documents = [case.problem(f"{number}.json") for number in range(3)]
    if _run(case, "solve", "0.json").code not in (0, 3):
        return
    for number in (1, 2):
        at = rng.randint(0, 30)
        codes = (0, 3, KILLED)
        _run(case, "solve", f"{number}.json", codes=codes, before=lambda at=at: _die(at))
        case.run("show", "out", "--html", "page.html", codes=ANY)  # any reader mends the folder
        known = {digest(document): document for document in documents[: number + 1]}
        found = known.get(digest(load(out / "problem.json")))
        if case.expect(found is not None, "the problem is none of those solved"):
            _hold(case, found, out, None)
    _run(case, "solve", "0.json")
    hidden = [str(path) for path in _files(out) if path.name.startswith(".") and path.name != LIST]
    case.expect(not hidden, f"leaves {hidden}")
    _hold(case, documents[0], out, None)


def _die(at: int) -> None:
    """Let this process be killed at its ``at``-th change of a folder."""
    left = [at]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return maybe

    for name in ("mkdir", "rename", "replace", "rmdir", "unlink"):
        setattr(os, name, counted(getattr(os, name)))


def _run(case: Case, name: str, problem: str, **how: Any) -> Any:
    command, *options = COMMANDS[name]
    words = [command, problem, *options, "-o", "out", "--time-limit", 0.1, "--workers", 1]
    return case.run(*words, **({"codes": (0, 3)} | how))


def _hold(case: Case, document: Any, out: Path, code: int | None) -> None:
    """The folder's files are of one result, and true."""
    if not case.expect((out / "result.json").exists(), "no result.json"):
        return
    result, schedule = load(out / "result.json"), schedule_in(out / "schedule.json")
    case.expect((schedule is None) == (result["value"] is None), "schedule.json without a value")
    ends = 3 if result["status"] == "infeasible" else 0
    judged = case.truth(document, "makespan", 0.3)
    case.violations += false_claims(judged, result, schedule, ends if code is None else code)


def _files(folder: Path) -> dict[Path, int]:
    """Every file and when it was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
