"""Compare two builds of pipesat on one machine, in alternation: the table of goals.

    git worktree add /tmp/old COMMIT
    python bench/builds.py --old /tmp/old --new . [--only PART] [--plan]
    python bench/builds.py table [--page PAGE]

Each measurement is a process of its own with one build on its PYTHONPATH. A row is appended as it
ends; the same command goes on where it stopped. Rows of another product than the build's are left.
What differs by less than 2 % is measured three times, after all else.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import lzma
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

from builds_table import BUILDS, PEERS, print_table
from runner import FOLDERS, HERE, RESULTS, Row, append, lines_of, machine

FIGURE = {"solve": "value", "starts": "all_s", "startup": "cpu_s", "million": "list_s"}
CLOSE = 0.02
PRODUCT = ("pipesat", "solver", "heuristics")
SAMPLES = 0.25  # seconds between two looks at the processes
BENCH = FOLDERS[0]
NEXT, MIX = (HERE / name / "problems" for name in ("beyond", "mixed"))
VEE = BENCH / "vee-6.2B-p8-m32-cap1.json"
CHAIN = BENCH / "lowcap-6.2B-p8-m32-cap0.75.json"
MIXTURE = MIX / "mix-all-vee-p4-m12-same.json"
CHECKED = BENCH / "vee-6.2B-p8-m32-cap0.625.json"
SCHEDULE = BENCH.parent / "schedules" / f"{CHECKED.stem}.makespan.json.xz"
PAIRS = NEXT / "pair-dsv3-vee-p8-m40-cap0.7.json"
OFFLOAD = NEXT / "mode-offload-chain-p8-m24-cap0.5-k1.6.json"
EXAMPLE = HERE.parent / "examples" / "zb-6.2B-p8-m16-cap0.75.json"
LENGTHS = NEXT / "class-tail-chain-p8-m32-free.json"
STARTUP = {
    "import pipesat": ("-c", "import pipesat"),
    "--help": ("-m", "pipesat", "--help"),
    "check": ("-m", "pipesat", "check", str(CHECKED), "schedule.json"),
}
MANY = 15  # runs of these


@dataclass(frozen=True)
class Case:
    """One measurement of a build: ``what`` is a function of builds_probe.py with its arguments."""

    part: str
    name: str
    what: str
    arguments: tuple[Any, ...] = ()
    cold: bool = False  # with an empty cache of compiled loops
    limit: float = 600


def solved(part: str, file: Path, limit: float, workers: int, **more: Any) -> Case:
    """A solve of a problem."""
    start = " cold" if more.get("cold") else ""
    name = f"{file.stem} {workers} workers{start}"
    return Case(part, name, "solve", (str(file), limit, workers), limit=limit, **more)


def cases(limit: float, workers: int) -> Iterator[Case]:
    """Every measurement, part after part."""
    for part, folders in {
        "values": (NEXT, MIX, PEERS / "problems"),
        "bench": (BENCH,),
        "others": (PEERS / "others",),
    }.items():
        for file in sorted(path for folder in folders for path in folder.glob("*-p*.json")):
            yield solved(part, file, limit, workers)
    for file in (MIXTURE, PAIRS, VEE, CHECKED):
        yield Case("starts", file.stem, "starts", (str(file),))
    for file in (MIXTURE, PAIRS, VEE, EXAMPLE):
        yield solved("starts", file, 10, workers)
    for file in (VEE, EXAMPLE):
        yield solved("starts", file, 10, workers, cold=True)
    for file in (CHAIN, OFFLOAD, MIXTURE):
        yield solved("cores", file, 30, 2)
    for number in (1, 2, 3):
        yield solved("memory", CHAIN, 20, number)
    for name, command in STARTUP.items():
        yield Case("startup", name, "startup", command)
    for ops in (10_000, 1_000_000):
        yield Case("million", f"{ops} ops", "million", (ops,))
    for number in (1, 2, 4, 8, 16):
        if number <= (os.cpu_count() or 1):
            for file in (CHAIN, VEE, OFFLOAD, MIXTURE, PAIRS, LENGTHS):
                yield solved("workers", file, 10, number)


def measured(case: Case, checkout: Path) -> Row:
    """Run a case with one build, and watch its processes."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as out:
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        if case.cold:
            environment["XDG_CACHE_HOME"] = folder
        (Path(folder) / "schedule.json").write_bytes(lzma.decompress(SCHEDULE.read_bytes()))
        before, launched = spent_by_ended(), time.monotonic()
        command = [*case.arguments]
        if case.what != "startup":
            message = json.dumps([str(checkout), case.what, launched, *case.arguments])
            command = [str(HERE / "builds_probe.py"), message]
        process = subprocess.Popen(
            [sys.executable, *command], stdout=out, stderr=out, env=environment, cwd=folder
        )
        row = watched(process, launched + 3 * case.limit + 60)
        row["cpu_s"] = round(max(row["cpu_s"], spent_by_ended() - before), 3)
        out.seek(0)
        *_, last = ["", *out.read().splitlines()]
    if process.returncode:
        row["failed"] = last
    elif case.what != "startup":
        row |= json.loads(last)
    wall = time.monotonic() - launched
    return row | {"wall_s": round(wall, 3), "cores": round(row["cpu_s"] / wall, 3)}


def spent_by_ended() -> float:
    """Processor seconds of all processes that this one has started and seen end."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def watched(process: subprocess.Popen[bytes], until: float) -> Row:
    """Processor seconds and the most memory (PSS, MiB) of a process and all that it started."""
    family, spent, most = {process.pid}, {}, 0.0
    while process.poll() is None:
        memory: dict[int, float] = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                if pid not in family and int(stat[1]) not in family:
                    continue
                family.add(pid)
                spent[pid] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                memory[pid] = int(rollup.partition("\nPss:")[2].split()[0]) / 1024
            except (OSError, IndexError):
                continue  # it has just ended
        most = max(most, sum(memory.values()))
        for pid in memory if time.monotonic() > until else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLES)
    return {"cpu_s": sum(spent.values()), "pss_mib": round(most)}


def identity(checkout: Path) -> Row:
    """The commit of a checkout, and a digest of its product, which other commits may share."""
    git = partial(subprocess.check_output, cwd=checkout, text=True)
    changed = git(["git", "diff", "HEAD", "--", *PRODUCT])
    state = git(["git", "ls-tree", "HEAD", *PRODUCT]) + changed
    commit = git(["git", "rev-parse", "--short=8", "HEAD"]).strip()
    digest = hashlib.sha256(state.encode()).hexdigest()[:12]
    return {"commit": commit + "-changed" * bool(changed), "product": digest}


def more_runs(rows: dict[tuple[Any, ...], Row], case: Case, most: int, number: int) -> bool:
    """Whether a case is run once more: two builds whose first runs are close, most times."""
    if case.what == "startup":
        return True
    if number >= most:
        return False
    one, other = (rows.get((case.part, case.name, build, 0), {}) for build in BUILDS)
    a, b = (row.get(FIGURE[case.what]) for row in (one, other))
    if a is None or b is None or one.get("status") == other.get("status") == "optimal":
        return False
    return bool(abs(a - b) < CLOSE * max(a, b))


def run(options: argparse.Namespace) -> None:
    """Measure what has no row yet, the first runs of all before any is repeated."""
    checkouts = {build: getattr(options, build).resolve() for build in BUILDS}
    products = {build: identity(path) for build, path in checkouts.items()}
    setting = {name: machine()[name] for name in ("date", "machine", "python")}
    chosen = [
        case
        for case in cases(options.limit, options.workers)
        if case.part in (options.only or ("values", "starts", "cores", "memory", "startup"))
        and fnmatch(case.name.split()[0], options.problems)
    ]
    rows = {
        (row["part"], row["case"], row["build"], row["run"]): row
        for row in lines_of(options.out)
        if row["product"] == products[row["build"]]["product"] and "failed" not in row
    }
    if not options.plan and not any(key[2] == "new" for key in rows):
        for file in (MIXTURE, CHAIN):  # its loops are compiled, and kept
            measured(solved("", file, 10, 1), checkouts["new"])
    for number in range(MANY):
        again = (case for case in chosen if more_runs(rows, case, options.repeat, number))
        for case in again if number else chosen:
            for build in options.build or (BUILDS if number % 2 == 0 else BUILDS[::-1]):
                key = (case.part, case.name, build, number)
                if key in rows or options.plan:
                    continue
                row = dict(zip(("part", "case", "build", "run"), key, strict=True))
                row |= measured(case, checkouts[build]) | products[build] | setting
                rows[key] = row
                append(options.out, row)
                shown = row.get("failed", row.get(FIGURE[case.what]))
                print(*key, shown, f"{row['wall_s']} s", flush=True)
    seconds = sum(case.limit if case.what == "solve" else 30 for case in chosen)
    print(f"{len(chosen)} cases of two builds, at most {2 * seconds / 3600:.1f} h for a run each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", nargs="?", choices=("run", "table"), default="run")
    for build in BUILDS:
        parser.add_argument(f"--{build}", type=Path, help=f"checkout of the {build} build")
    parser.add_argument("--build", action="append", choices=BUILDS, help="this one alone (both)")
    parser.add_argument("--only", action="append", metavar="PART", help="parts; see cases()")
    parser.add_argument("--problems", default="*", metavar="GLOB", help="these alone (all)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per value (60)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="runs where two are close (3)")
    parser.add_argument("--out", type=Path, default=RESULTS / "builds.jsonl")
    parser.add_argument("--page", type=Path, help="put the table between its marks there")
    parser.add_argument("--plan", action="store_true", help="only say how long it would take")
    options = parser.parse_args()
    if options.action == "table":
        print_table(lines_of(options.out), options.page)
    elif options.old and options.new:
        run(options)
    else:
        parser.error("expected --old and --new, two checkouts")


if __name__ == "__main__":
    main()
