"""Run cases one after the other, each in a process of its own, and append a row as each one ends.

A case whose row is already in the file is skipped, so an interrupted run is continued by the same
command. The child is the same script with ``--child``: it prints its row as its last line. This
module imports nothing heavy, because on Linux a child's ``ru_maxrss`` starts at its parent's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pipesat.core.usable_cores import usable_cores

Row = dict[str, Any]

HERE = Path(__file__).resolve().parent
FOLDERS = (HERE / "plain" / "problems", HERE / "more" / "problems")
RESULTS = HERE / "results"
KEY = ("problem", "variant", "objective", "limit", "workers", "seed")
START_AND_END = 3.0  # seconds around a solve, for plans


@dataclass(frozen=True)
class Case:
    """One solve: ``limit`` in seconds; ``seed`` tells the repetitions apart."""

    problem: str
    file: str
    variant: str
    objective: str
    limit: float
    workers: int
    seed: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What its row is recognised by."""
        return tuple(getattr(self, name) for name in KEY)


Measure = Callable[[Case, float], Row]
"""``(case, launched) -> row``, run in the child; ``launched`` is when its process was started."""


# ---- the child's side ----


def since(launched: float) -> float:
    """Seconds since the process was started; the clock counts for all processes alike."""
    return time.monotonic() - launched


def _child(measure: Measure, text: str) -> None:
    message = json.loads(text)
    row = measure(Case(**message["case"]), message["launched"])
    unit = 1024 if sys.platform == "darwin" else 1  # bytes there, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit / 1024
    print(json.dumps(row | {"peak_mib": round(peak)}))


# ---- the parent's side ----


def main(
    script: str,
    cases_of: Callable[[argparse.Namespace, list[Path]], Iterable[Case]],
    measure: Measure,
    *,
    description: str,
    selection: Sequence[str] | None = None,
) -> int:
    """A script's command line; returns the exit status: 1 if any case failed."""
    if sys.argv[1:2] == ["--child"]:
        _child(measure, sys.argv[2])
        return 0
    options = _options(description, RESULTS / f"{Path(script).stem}.jsonl")
    files = chosen_files(options.folder or FOLDERS, options.only or selection or ["*"])
    return run(script, list(cases_of(options, files)), options.out, plan_only=options.plan)


def _options(description: str, out: Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    add = parser.add_argument
    add("--limit", type=float, default=60.0, help="seconds per solve (60)")
    add("--workers", type=int, default=usable_cores(), help="threads (the cores there are)")
    add("--repeat", type=int, default=1, help="runs per case, each with its seed (1)")
    add("--first-seed", type=int, default=0, help="of the runs (0)")
    add("--objective", choices=("makespan", "span"), default="makespan")
    add("--only", action="append", metavar="GLOB", help="problems by name; may be repeated")
    add("--variant", default="*", metavar="GLOB", help="variants by name (all)")
    add("--folder", action="append", type=Path, metavar="DIR", help="problem files from here")
    add("--out", type=Path, default=out, help="file to append to, one JSON object per line")
    add("--plan", action="store_true", help="only say how long it would take")
    return parser.parse_args()


def chosen_files(folders: Iterable[Path], globs: Iterable[str]) -> list[Path]:
    """Problem files whose name matches any of the globs, folder after folder."""
    globs = list(globs)
    files = [path for folder in folders for path in sorted(folder.glob("*.json"))]
    chosen = [path for path in files if any(fnmatch(path.stem, glob) for glob in globs)]
    if not chosen:
        sys.exit(f"no problem file matches {' '.join(globs)}")
    return chosen


def repeated(
    options: argparse.Namespace, files: Iterable[Path], variants: Iterable[str]
) -> Iterator[Case]:
    """Every variant of every problem, all of them once before any is repeated."""
    variants = [name for name in variants if fnmatch(name, options.variant)]
    for seed in range(options.first_seed, options.first_seed + options.repeat):
        for file in files:
            for variant in variants:
                yield Case(
                    file.stem,
                    str(file.resolve()),
                    variant,
                    options.objective,
                    options.limit,
                    options.workers,
                    seed,
                )


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, the last one per case."""
    return list({tuple(row[name] for name in KEY): row for row in lines_of(path)}.values())


def lines_of(path: Path) -> Iterator[Row]:
    """The lines of a file of rows; one that was cut off is left out."""
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            print(f"{path.name}: left out a broken line", file=sys.stderr)


def run(script: str, cases: list[Case], out: Path, *, plan_only: bool) -> int:
    """Run what has no row yet; failed cases are tried again."""
    rows = read_rows(out)
    finished = {tuple(row[name] for name in KEY) for row in rows if row["status"] != "failed"}
    todo = [case for case in cases if case.key not in finished]
    print(plan(Path(script).name, len(cases), todo, rows), flush=True)
    if plan_only or not todo:
        return 0
    out.parent.mkdir(parents=True, exist_ok=True)
    setting = machine()
    failed = 0
    for number, case in enumerate(todo, 1):
        named = {name: getattr(case, name) for name in KEY}
        row = named | _in_child(script, case) | setting
        append(out, row)
        failed += row["status"] == "failed"
        print(f"[{number}/{len(todo)}] {summary(row)}", flush=True)
    return 1 if failed else 0


def plan(script: str, total: int, todo: list[Case], rows: list[Row]) -> str:
    """One line: how many cases are left, and how long they take at most and by earlier rows."""
    seconds: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["status"] != "failed":
            seconds[tuple(row[name] for name in KEY[:-1])] = row["wall_s"]
    most = sum(case.limit + START_AND_END for case in todo)
    expected = sum(seconds.get(case.key[:-1], case.limit + START_AND_END) for case in todo)
    earlier = f", {_hours(expected)} going by earlier rows" if seconds and todo else ""
    return f"{script}: {len(todo)} of {total} cases to run, at most {_hours(most)}{earlier}"


def _hours(seconds: float) -> str:
    minutes = -(-int(seconds) // 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _in_child(script: str, case: Case) -> Row:
    """Run one case; it is killed if it takes far longer than its limit."""
    launched = time.monotonic()
    message = json.dumps({"case": asdict(case), "launched": launched})
    command = [sys.executable, script, "--child", message]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=3 * case.limit + 60
        )
    except subprocess.TimeoutExpired:
        return {
            "status": "killed",
            "wall_s": round(since(launched), 2),
            "why": "far over its limit",
        }
    took = {"wall_s": round(since(launched), 2)}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return {"status": "failed", "why": last} | took
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row | took


def append(path: Path, row: Row) -> None:
    """Add a line; one that an interrupted run left unfinished is ended first."""
    before = path.read_bytes() if path.exists() else b""
    with path.open("a") as file:
        file.write(("\n" if before and not before.endswith(b"\n") else "") + json.dumps(row) + "\n")


def summary(row: Row) -> str:
    """A row for the screen."""
    gap = "" if row.get("gap") is None else f" gap {100 * row['gap']:.2f} %"
    value = "" if row.get("value") is None else f" {row['value']}"
    why = f" ({row['why']})" if row.get("why") else ""
    name = f"{row['problem']} {row['variant']} {row['objective']} seed {row['seed']}"
    return f"{name}: {row['status']}{value}{gap}, {row['wall_s']} s{why}"


def machine() -> Row:
    """What a row has to say about where and when it was made."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{_processor()}, {usable_cores()} cores, {_memory_gib()} GiB",
        "python": platform.python_version(),
        "commit": commit or None,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3)
