"""Run the commands and Python of README and docs as they are written, with the package of a wheel.

``WHEEL/bin/python run.py [--limit SECONDS] [PAGE ...]``, from anywhere: every page has an empty
folder of its own with the shipped examples in it, as ``pipesat problem examples`` writes them, and
the profile and the problem that ``docs/run-it.md`` made. ``--limit`` gives every command that has
a time limit, and that states none, this one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pipesat

ROOT = Path(__file__).parents[2]
FIRST = "docs/run-it.md"
MADE = ("profile.json", "problem.json")
NOT_RUN = {
    r"bash scripts/|source ": "in the clone",
    r"pip install": "this environment has the extras that it was made with",
    r"torchrun --nnodes 2": "needs two machines",
    r"pipesat explore|ssh ": "stays until it is ended",
    r".*\b(TRACE|rank0\.json)\b": "reads traces of a job of your own",
}
ELSEWHERE = (
    "given/rank0",
    "PipelineStage)",
    "_PipelineScheduleRuntime(",
    "def build_stage",
    "# my_model.py",
)


class Outcome(NamedTuple):
    """What became of one line or block."""

    text: str
    seconds: float
    why: str  # of a failure; empty: it ran

    def __str__(self) -> str:
        said = f"FAILED: {self.why}" if self.why else "ok"
        return f"  {self.seconds:6.1f} s  {self.text[:90]}  {said}"


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    text = (ROOT / page).read_text()
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield match[1], match[2]


def limited(line: str, limit: float | None) -> str:
    """Append a time limit where the command has one and the line does not say it."""
    if limit is None or not line.startswith("pipesat ") or "--time-limit" in line:
        return line
    words = [word for word in line.split()[1:3] if re.fullmatch(r"[a-z-]+", word)]
    told = subprocess.run(
        ["pipesat", *words, "--help"], check=False, capture_output=True, text=True
    ).stdout
    searches = "--time-limit" in told and not re.search("^pipesat run |--dry-run|--noise", line)
    bare, hash_, remark = line.partition(" #")
    return f"{bare} --time-limit {limit:g}{hash_}{remark}" if searches else line


def shell(line: str) -> str:
    """Run a line; return why it failed."""
    found = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True)
    return "" if found.returncode == 0 else f"{found.returncode}: {found.stderr.strip()[-300:]}"


def python(text: str, names: dict[str, Any], limit: float | None) -> str:
    """Run a block; return why it failed."""
    if limit is not None:
        text = re.sub(r"time_limit=\d+", f"time_limit={limit:g}", text)
    try:
        exec(compile(text, "page", "exec"), names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def read(page: str, limit: float | None) -> Iterator[Outcome]:
    """Do what a page says, from top to bottom, in the present folder."""
    names: dict[str, Any] = {"__name__": "page"}
    for language, text in blocks(page):
        first = text.split(maxsplit=1)[0] if text.strip() else ""
        if language == "python" and not any(word in text for word in ELSEWHERE):
            began = time.monotonic()
            why = python(text, names, limit)
            yield Outcome(f"python: {text.splitlines()[0]}", time.monotonic() - began, why)
        elif language in ("", "bash", "sh") and re.match(r"[a-z]+$", first):
            for line in text.replace("\\\n", " ").splitlines():
                if line.strip() and not any(re.match(begin, line) for begin in NOT_RUN):
                    began = time.monotonic()
                    why = shell(limited(line, limit))
                    yield Outcome(line, time.monotonic() - began, why)


def main() -> int:
    """Read every page; print each line's outcome, and how many failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float)
    parser.add_argument("pages", nargs="*")
    asked = parser.parse_args()
    package = Path(pipesat.__file__).resolve()
    if ROOT in package.parents:
        parser.error(f"this is the clone's package, not a wheel's: {package}")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pages = asked.pages or [
        FIRST,
        "README.md",
        *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ]
    failed = ran = 0
    with tempfile.TemporaryDirectory() as home:
        made = Path(home) / "made"
        made.mkdir()
        for page in dict.fromkeys(pages):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                for file in made.iterdir():
                    shutil.copy(file, folder)
                shell("pipesat problem examples examples")
                print(page, flush=True)
                for outcome in read(page, asked.limit):
                    ran, failed = ran + 1, failed + bool(outcome.why)
                    print(outcome, flush=True)
                if page == FIRST:
                    for name in MADE:
                        shutil.copy(name, made)
                os.chdir(home)
    print(f"{ran} lines and blocks ran, {failed} failed; pipesat {pipesat.__version__}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
