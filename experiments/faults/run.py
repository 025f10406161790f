"""Which of 200 drawn faults does the suite catch?

    nice -n 15 python experiments/faults/run.py -j 2
    python experiments/faults/run.py --only 3 50 120
    python experiments/faults/run.py --find

Each fault meets the tests that import its module, the fast ones first, until one fails; survivors
alone meet the whole fast suite. What is done is kept under `work/`, by commit: started again, it
goes on. Exits with 1 if a fault that was caught no longer is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INSIDE = HERE / "inside"
sys.path[0] = str(HERE.parent)
sys.path.insert(1, str(INSIDE))

from faults.drawn import Fault, draw, located, read_drawn, write_drawn  # noqa: E402
from faults.near import near  # noqa: E402
from faults.table import keep, no_longer_caught, read_results, write_results  # noqa: E402

Row = dict[str, Any]
PATIENCE = 5400.0
"""Seconds after which even a batch of tests that takes no processor time is ended."""


def main() -> int:
    options = _options()
    if options.draw:
        write_drawn(draw(ROOT))
    faults = read_drawn()
    found, missing = located(ROOT, faults)
    for fault in missing:
        print(f"{fault.number}: not found, set it again: {fault.text}")
    if options.find or options.draw:
        print(f"{len(found)} of {len(faults)} faults found")
        return int(bool(missing))
    if changed := _git("status", "--porcelain", "--", "pipesat", "solver", "heuristics", "tests"):
        raise SystemExit(f"commit first, results are kept by commit:\n{changed}")
    folder = options.work / _git("rev-parse", "--short=12", "HEAD").strip()
    folder.mkdir(parents=True, exist_ok=True)
    rows = run(folder, found, options)
    if options.only or len(rows) < len(found):
        return 0
    before = read_results()
    write_results(rows)
    keep(HERE / "README.md", rows, _git("log", "-1", "--format=%h, %cs").strip())
    lost = no_longer_caught(before, rows)
    for row in lost:
        print(f"{row['number']}: no longer caught: {row['file']} {row['function']}: {row['line']}")
    return int(bool(lost or missing))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-j", "--workers", type=int, default=1, help="faults at a time")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="numbers of faults")
    parser.add_argument("--find", action="store_true", help="say which faults are in this source")
    parser.add_argument("--draw", action="store_true", help="draw the faults of this source anew")
    parser.add_argument("--work", type=Path, default=HERE / "work", metavar="DIR")
    return parser.parse_args()


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(folder: Path, faults: Sequence[Fault], options: argparse.Namespace) -> list[Row]:
    """Set every fault that has no row yet, and write its row when it is known."""
    path = folder / "rows.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {row["number"]: row for row in map(json.loads, lines)}
    left = [fault for fault in faults if fault.number not in rows]
    if options.only:
        left = [fault for fault in left if fault.number in options.only]
    with ThreadPoolExecutor(options.workers) as pool:
        for row in pool.map(lambda fault: run_fault(folder, fault), left):
            rows[row["number"]] = row
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            text = f"{len(rows)}: {row['number']} {row['verdict']}, {row['seconds']} s, {row['by']}"
            print(text, flush=True)
    return [rows[fault.number] for fault in faults if fault.number in rows]


def run_fault(folder: Path, fault: Fault) -> Row:
    """Run batches of tests until one fails with the fault that passes without it."""
    begin, skipped = time.monotonic(), list[str]()
    tests = near(ROOT, fault.now.file)
    batches = {
        "near": ["-m", "not slow", *tests],
        "near, slow": ["-m", "slow", *tests],
        "fast suite": ["-m", "not slow", "tests"],
    }
    by = how = caught_in = None
    for batch, words in batches.items():
        by, how = _caught(folder / f"{fault.number}.log", fault, words, skipped)
        if how is not None:
            caught_in = batch
            break
    return asdict(fault.now.place) | {
        "number": fault.number,
        "group": fault.group,
        "file": fault.now.file,
        "verdict": "survived" if how is None else "caught",
        "by": by,
        "how": how,
        "batch": caught_in,
        "fails_without": skipped,
        "seconds": round(time.monotonic() - begin, 1),
    }


def _caught(
    log: Path, fault: Fault, words: Sequence[str], skipped: list[str]
) -> tuple[str | None, str | None]:
    """Return the test that fails with a fault alone, and how; ``None`` twice if none does."""
    while True:
        code, by, how = _pytest([*words, *(f"--deselect={test}" for test in skipped)], log, fault)
        if code in (0, 5):  # 5: there was no such test
            return None, None
        if how == "collected" or by in skipped or "::" not in by:
            return by, how
        if _pytest([by], log.with_suffix(".without"), None)[0] == 0:
            return by, how
        skipped.append(by)


def _pytest(words: Sequence[str], log: Path, fault: Fault | None) -> tuple[int, str, str]:
    """Run pytest in a session of its own; return its code, the last test noted, and what it did."""
    note = log.with_suffix(".note")
    note.write_text("before any test", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(INSIDE), "FAULT_NOTE": str(note)}
    if fault is not None:
        told = {"path": str(ROOT / fault.now.file), "place": asdict(fault.now.place)}
        environment["FAULT"] = json.dumps(told)
    command = [sys.executable, "-m", "pytest", "-p", "fault_plugin", "-p", "no:cacheprovider"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "-q", "-x", "-n", "0", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = -9
        finally:
            with suppress(ProcessLookupError):  # no rank or server outlives its test
                os.killpg(process.pid, 9)
            process.wait()
    by, _, how = note.read_text(encoding="utf-8").rpartition(" ")
    return code, by, how if how in ("fails", "collected") else f"ends pytest with {code}"


if __name__ == "__main__":
    sys.exit(main())
