"""Put a case to the product, in this process, and say what is kept of its answers."""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any

import pipesat
from golden.cases import Ask, Case
from golden.look import digest, kept_of_file, kept_of_text
from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.cli import main as command_line
from pipesat.compare.hand_written import baseline
from pipesat.heuristics import BASELINES
from pipesat.problem.problem_file import read_problem
from pipesat.schedule.schedule_file import write_schedule

Kept = dict[str, Any]
RULES = [
    (name, {"microbatches": rule})
    for name in ("1f1b", "interleaved-1f1b", "list-scheduling")
    for rule in ("descending", "ascending", "both-ends")
]
"""Schedules for lists of microbatches, beside every name in the order given."""


def answer(case: Case, home: Path, more: float = 1.0) -> dict[str, Kept]:
    """Ask a case in its folder; time limits of searches by the clock are ``more`` times as long."""
    folder = home / case.name.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in case.files.items():
        if isinstance(content, Path):
            shutil.copy(content, folder / name)
        else:
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            (folder / name).write_text(text, encoding="utf-8")
    with chdir(folder):
        return {
            one.name: _direct(one, folder) if one.words in DIRECT else _asked(one, more)
            for one in case.asks
            if Path(one.needs).exists()
        }


def _direct(one: Ask, folder: Path) -> Kept:
    try:
        return DIRECT[one.words](folder)
    except Exception as error:
        return {"ended": type(error).__name__}


def _asked(one: Ask, more: float) -> Kept:
    words = one.words.split()
    if one.held == "within" and "--time-limit" in words:
        at = words.index("--time-limit") + 1
        words[at] = str(more * float(words[at]))
    before = _files()
    code, out = _command(words)
    kept: Kept = {} if code == 0 else {"code": code}
    if "--json" in words:
        kept["said"] = kept_of_text(out, one.held)
    if one.held == "within":  # which files there are depends on what is found, and when
        return kept
    for path, changed in _files().items():
        if before.get(path) != changed:
            found = kept_of_file(Path(path), one.held)
            kept[path] = "as said" if found == kept.get("said") != "there" else found
    return kept


def _files() -> dict[str, int]:
    found = (path for path in Path().rglob("*") if path.is_file() and path.name[0] != ".")
    return {str(path): path.stat().st_mtime_ns for path in sorted(found)}


def _command(words: list[str]) -> tuple[object, str]:
    """Run a command line in this process; return its exit code, or what it raised, and stdout."""
    sys.argv = ["pipesat", *words]
    out = Path(".stdout")
    with (
        out.open("w", encoding="utf-8") as to_out,
        Path(".stderr").open("w", encoding="utf-8") as to_err,
        _descriptor(1, to_out.fileno()),
        _descriptor(2, to_err.fileno()),
        redirect_stdout(to_out),
        redirect_stderr(to_err),
    ):
        try:
            command_line()
            code: object = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            traceback.print_exc()
            code = type(error).__name__
    return code, out.read_text(encoding="utf-8", errors="replace")


@contextmanager
def _descriptor(number: int, other: int) -> Iterator[None]:
    """Let a descriptor be another one: not all that is written goes through ``sys``."""
    kept = os.dup(number)
    os.dup2(other, number)
    try:
        yield
    finally:
        os.dup2(kept, number)
        os.close(kept)


# What is asked of Python, not of a command


def _closed_forms(folder: Path) -> Kept:
    """Each objective's best bound with its argument, and the digest of all."""
    problem = read_problem(folder / "p.json")
    kept: Kept = {}
    for objective in ("makespan", "span"):
        bounds = [(b.source, b.value) for b in closed_form_bounds(problem, objective)]
        source, value = max(bounds, key=lambda bound: bound[1])
        kept[objective] = {"best": value, "by": source, "all": digest(sorted(bounds))}
    return kept


def _heuristics(folder: Path) -> Kept:
    """The makespan and the digest of each schedule's file; nothing where none is made."""
    problem, kept = read_problem(folder / "p.json"), {}
    asked: list[tuple[str, Kept]] = [(name, {}) for name in BASELINES]
    asked += [("interleaved-1f1b", {"group": group}) for group in (1, 3)]
    if problem.has_lists:
        asked += RULES
    for name, options in asked:
        with suppress(pipesat.NotApplicable, pipesat.BadInput):  # groups of 3 of 2 microbatches
            schedule = baseline(name, problem, **options)
            write_schedule(folder / "s.json", problem, schedule)
            text = " ".join([name, *map(str, options.values())])
            kept[text] = f"{schedule.makespan} {digest((folder / 's.json').read_text())}"
    return kept


def _spoil(folder: Path) -> Kept:
    """Write a schedule in which one op is later, longer or gone, or two have changed places."""
    (path,) = (folder / p for p in ("out/schedule.json", "s.json") if (folder / p).exists())
    document = json.loads(path.read_text(encoding="utf-8"))
    chance = Random(folder.name)
    row = chance.choice([row for row in document["devices"] if row])
    entry, other = chance.choice(row), chance.choice(row)
    match chance.randrange(4):
        case 0:
            entry[1:] = [entry[1] + 1, entry[2] + 1]
        case 1:
            entry[2] += 1
        case 2:
            row.remove(entry)
        case 3:
            entry[0], other[0] = other[0], entry[0]
    (folder / "spoilt.json").write_text(json.dumps(document), encoding="utf-8")
    return {}


DIRECT = {"=closed-forms": _closed_forms, "=heuristics": _heuristics, "=spoil": _spoil}
