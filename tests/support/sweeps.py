"""Sweeps for tests: their files, their processes and their rows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from pipesat.compare.sweep.row_file import NAME, SweepRow
from pipesat.compare.sweep.spec import cases_of, read_spec

Save = Callable[..., Path]

HEAD = 'format = "pipesat.sweep/1"\n'
COSTS = "[costs.small]\nF = 2\nB = 3\nW = 1\nheld_after_F = 1\nheld_after_B = 1\n"
SIXTY = (
    HEAD
    + COSTS
    + """
[grid]  # 2 x 3 x 5 x 2 = 60
devices = [2, 3]
microbatches = [2, 3, 4]
memory = ["unlimited", 1, 2, 3, 4]
objective = ["makespan", "span"]
time_limit = 100  # each is proven in a second of an idle core
"""
)
# As sixty, where every case costs a second.
FEWER = SIXTY.replace('"unlimited", 1, 2, 3, 4', '"unlimited", 2').replace("[2, 3, 4]", "2")  # 8
# No bound is met at half of 1F1B's memory, so these take all of their time.
LONG = (
    HEAD
    + """
[costs.any]
F = 20
B = 31
W = 17
held_after_F = 10
held_after_B = 4
[grid]
devices = 16
microbatches = [60, 61]
memory = "1f1b*0.5"
time_limit = 60
"""
)


def rows_in(folder: Path) -> list[SweepRow]:
    return [json.loads(line) for line in (folder / NAME).read_text().splitlines()]


def small(grid: str, run: str = "") -> str:
    return f"{HEAD}{run}{COSTS}[grid]\n{grid}\n"


def start(spec: Path, folder: Path, *more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipesat", "sweep", spec, "-o", folder, *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def rows_so_far(folder: Path) -> int:
    path = folder / NAME
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_until(is_so: Callable[[], object], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> Iterator[int]:
    """All descendants of a process."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        parents.setdefault(parent, []).append(int(stat.parent.name))
    left = [pid]
    while left:
        found = parents.get(left.pop(), [])
        yield from found
        left += found


def killed_after_two_rows(spec: Path, folder: Path, *more: object) -> list[int]:
    """Start a sweep of many cases, kill it when it has two rows more; its processes by then."""
    before = rows_so_far(folder)
    process = start(spec, folder, *more)
    wait_until(lambda: rows_so_far(folder) >= before + 2)
    below = list(children(process.pid))
    process.kill()
    process.communicate()
    assert rows_so_far(folder) < len([*cases_of(read_spec(spec))])
    return below


def ends_with_every_case_once(spec: Path, folder: Path, *more: object) -> None:
    """Start it again: it ends, with a row per case and all of them solved."""
    process = start(spec, folder, *more)
    _, err = process.communicate()
    assert process.returncode == 0, err
    rows = rows_in(folder)
    keys = Counter(case.key for case in cases_of(read_spec(spec)))
    assert Counter(row["key"] for row in rows) == keys
    assert {row["status"] for row in rows} == {"optimal"}
