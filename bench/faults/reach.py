"""Which tests meet the line of a fault: the others cannot see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from faults.drawn import Fault

Reach = dict[int, list[tuple[str, float]]]
"""By the number of a fault: tests that meet it, the quickest first, with the sum of seconds."""


def reach(root: Path, inside: Path, folder: Path, faults: Sequence[Fault], workers: int) -> Reach:
    """Run the whole suite once with every place marked; kept in a folder, and read from there."""
    kept = folder / "reach.json"
    if not kept.exists():
        reached, times = folder / "reached", folder / "times"
        for file in (reached, times):
            file.unlink(missing_ok=True)
        _run(root, inside, reached, times, faults, workers)
        kept.write_text(json.dumps(_read(reached, times), indent=0), encoding="utf-8")
    found = json.loads(kept.read_text(encoding="utf-8"))
    return {fault.number: found.get(str(fault.number), []) for fault in faults}


def _run(
    root: Path, inside: Path, reached: Path, times: Path, faults: Sequence[Fault], workers: int
) -> None:
    marks: dict[str, dict[int, Any]] = defaultdict(dict)
    for fault in faults:
        marks[str(root / fault.now.file)][fault.number] = asdict(fault.now.place)
    environment = os.environ | {
        "PYTHONPATH": f"{inside}:{root}",
        "FAULTS": json.dumps(marks),
        "FAULTS_REACHED": str(reached),
        "FAULTS_TIMES": str(times),
    }
    command = [sys.executable, "-m", "pytest", "-p", "reached_plugin", "-p", "no:cacheprovider"]
    command += ["-q", "-n", str(workers), "tests"]
    if subprocess.run(command, check=False, cwd=root, env=environment).returncode:
        raise SystemExit("the suite fails without any fault: mend that first")


def _read(reached: Path, times: Path) -> Reach:
    seconds: dict[str, float] = defaultdict(float)
    for line in times.read_text(encoding="utf-8").splitlines():
        duration, _, test = line.split(" ", 2)
        seconds[test] += float(duration)
    of_file: dict[str, list[str]] = defaultdict(list)
    for test in seconds:
        of_file[test.partition("::")[0]].append(test)
    found: dict[int, set[str]] = defaultdict(set)
    for line in reached.read_text(encoding="utf-8").splitlines():
        number, _, test = line.partition(" ")
        found[int(number)] |= {test} if "::" in test else {*of_file[test]}
    return {number: _quickest(tests & {*seconds}, seconds) for number, tests in found.items()}


def _quickest(tests: set[str], seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    ordered = sorted(tests, key=lambda test: (seconds[test], test))
    return list(zip(ordered, accumulate(seconds[test] for test in ordered), strict=True))
