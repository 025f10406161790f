"""Which of 200 drawn faults does the suite catch?

    nice -n 15 python bench/faults/run.py -j 2
    python bench/faults/run.py --only 3 50 120
    python bench/faults/run.py --near --keep
    python bench/faults/run.py --again
    python bench/faults/run.py --find

The whole suite is run once without a fault to see which tests meet which fault's line. Each fault
then meets those, the quickest first, until one fails; what takes longest is left for survivors,
some of them at a time, and with `--near` they stay open. What is done is kept under `work/`, by
commit: started again, it goes on. With `--keep` a fault that has not run keeps its last result.
`--again` is the short way: each fault that was caught meets the test that caught it, no more.
Exits with 1 if a fault that was caught no longer is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INSIDE = HERE / "inside"
sys.path[0] = str(HERE.parent)
sys.path.insert(1, str(INSIDE))

from faults.drawn import KERNELS, Fault, located, read_drawn  # noqa: E402
from faults.reach import Reach, reach  # noqa: E402
from faults.table import keep, no_longer_caught, read_results, write_results  # noqa: E402

Row = dict[str, Any]
TOGETHER = 16
"""Faults that meet longer tests at once, after each survived the quicker ones that meet it."""
ALONE = 150.0
"""Seconds of tests that a fault meets alone; the longer ones meet it beside other survivors."""
PATIENCE = 5400.0
"""Seconds after which even a batch of tests that takes no processor time is ended."""
PROCESSOR = 600, 3600
"""Seconds of processor time after which tests of one fault, or of a group, do not end any more."""


def main() -> int:
    options = _options()
    faults = read_drawn()
    found, missing = located(ROOT, faults)
    for fault in missing:
        print(f"{fault.number}: not found, set it again: {fault.text}")
    if options.find:
        print(f"{len(found)} of {len(faults)} faults found")
        return int(bool(missing))
    if changed := _git("status", "--porcelain", "--", "pipesat", "solver", "heuristics", "tests"):
        raise SystemExit(f"commit first, results are kept by commit:\n{changed}")
    folder = options.work / _git("rev-parse", "--short=12", "HEAD").strip()
    folder.mkdir(parents=True, exist_ok=True)
    commit = _git("log", "-1", "--format=%h, %cs").strip()
    before = read_results()
    known = {row["number"]: row for row in before if options.keep or options.again}
    wanted = [one for one in found if not options.only or one.number in options.only]
    ran = run_again(folder, wanted, before) if options.again else run(folder, found, options)
    known |= {row["number"]: row | {"at": commit} for row in ran}
    rows = [known[fault.number] for fault in found if fault.number in known]
    if len(rows) < len(found):
        return 0
    write_results(rows)
    keep(HERE / "README.md", rows, commit)
    lost = no_longer_caught(before, rows)
    for row in lost:
        print(f"{row['number']}: no longer caught: {row['file']} {row['function']}: {row['line']}")
    stale = [row for row in rows if row["verdict"] == "caught" and row["at"] != commit]
    return int(bool(lost or missing or (options.again and stale)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-j", "--workers", type=int, default=1, help="faults at a time")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="numbers of faults")
    parser.add_argument("--near", action="store_true", help="no longer tests of survivors")
    parser.add_argument("--keep", action="store_true", help="last results of those that do not run")
    parser.add_argument("--again", action="store_true", help="by the tests that caught them alone")
    parser.add_argument("--find", action="store_true", help="say which faults are in this source")
    parser.add_argument("--work", type=Path, default=HERE / "work", metavar="DIR")
    return parser.parse_args()


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def run(folder: Path, faults: Sequence[Fault], options: argparse.Namespace) -> list[Row]:
    """Set every fault that has no row yet, and write its row when it is known."""
    reached = reach(ROOT, INSIDE, folder, faults, options.workers)
    near_rows = _Rows(folder / "near.jsonl")
    rows = _Rows(folder / "rows.jsonl")
    wanted = [fault for fault in faults if not options.only or fault.number in options.only]
    with ThreadPoolExecutor(options.workers) as pool:
        left = [fault for fault in wanted if fault.number not in near_rows.known]
        for done in as_completed([pool.submit(run_near, folder, fault, reached) for fault in left]):
            near_rows.add(done.result())
        for number, row in near_rows.known.items():
            if row["verdict"] == "caught" and number not in rows.known:
                rows.add(row)
        left = [fault for fault in wanted if fault.number not in rows.known]
        for fault in [fault for fault in left if not _longer(reached, fault)]:
            rows.add(near_rows.known[fault.number])
            left.remove(fault)
        some = [] if options.near else _groups(left)
        groups = [pool.submit(run_group, folder, group, reached) for group in some]
        for done in as_completed(groups):
            for number, told in done.result().items():
                rows.add(near_rows.known[number] | told)
    near = {number: row | {"verdict": "open"} for number, row in near_rows.known.items()}
    return [*(near | rows.known).values()]


def run_again(folder: Path, faults: Sequence[Fault], before: Sequence[Row]) -> list[Row]:
    """Run each test that caught a fault with it; return the rows of those that it still catches."""
    asked, told = folder / "again.json", folder / "again.told"
    caught = {row["number"]: row for row in before if row["verdict"] == "caught"}
    jobs = [
        {
            "number": fault.number,
            "file": str(ROOT / fault.now.file),
            "place": asdict(fault.now.place),
            "by": caught[fault.number]["by"],
        }
        for fault in faults
        if fault.number in caught
    ]
    asked.write_text(json.dumps(jobs), encoding="utf-8")
    told.write_text("", encoding="utf-8")
    files = sorted({str(job["by"]).partition("::")[0] for job in jobs})
    command = [sys.executable, "-m", "pytest", "-p", "again_plugin", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": f"{INSIDE}:{ROOT}", "FAULTS_AGAIN": asked, "FAULTS_TOLD": told}
    subprocess.run(
        [*command, "-q", "-n", "0", *(file for file in files if (ROOT / file).exists())],
        check=True,
        cwd=ROOT,
        env=os.environ | {key: str(value) for key, value in environment.items()},
    )
    still = {int(number) for number in told.read_text(encoding="utf-8").split()}
    for fault in faults:
        if fault.number in caught and fault.number not in still:
            by = caught[fault.number]["by"]
            print(f"{fault.number}: not caught by {by}: run it with --only", flush=True)
    return [
        caught[fault.number] | asdict(fault.now.place) | {"file": fault.now.file}
        for fault in faults
        if fault.number in still
    ]


class _Rows:
    """Rows by the number of their fault, kept in a file of a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.known: dict[int, Row] = {row["number"]: row for row in map(json.loads, lines)}

    def add(self, row: Row) -> None:
        self.known[row["number"]] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        text = (
            f"{len(self.known)}: {row['number']} {row['verdict']}, {row['seconds']} s, {row['by']}"
        )
        print(text, flush=True)


def run_near(folder: Path, fault: Fault, reached: Reach) -> Row:
    """Run the tests that meet a fault's line until one fails with it that passes without it."""
    begin, skipped = time.monotonic(), list[str]()
    tests = [test for test, ends in reached[fault.number] if ends <= ALONE]
    by = how = None
    if tests:
        listed = _listed(folder / f"{fault.number}.tests", tests)
        by, how = _caught(folder / f"{fault.number}.log", fault, [listed], skipped)
    return asdict(fault.now.place) | {
        "number": fault.number,
        "group": fault.group,
        "file": fault.now.file,
        "verdict": "survived" if how is None else "caught",
        "by": by,
        "how": how,
        "batch": "meets it" if how else None,
        "met_by": len(reached[fault.number]),
        "fails_without": skipped,
        "seconds": round(time.monotonic() - begin, 1),
    }


def _longer(reached: Reach, fault: Fault) -> list[str]:
    """Tests that meet a fault and that it does not meet alone."""
    return [test for test, ends in reached[fault.number] if ends > ALONE]


def _groups(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Share faults out to groups of at most ``TOGETHER``, none with two of one file."""
    groups: list[list[Fault]] = []
    for fault in faults:
        for group in groups:
            if len(group) < TOGETHER and all(fault.now.file != one.now.file for one in group):
                group.append(fault)
                break
        else:
            groups.append([fault])
    return groups


def run_group(folder: Path, group: Sequence[Fault], reached: Reach) -> dict[int, Row]:
    """Run the longer tests that meet a fault of a group, with all of them.

    Until nothing fails that one alone explains: a fault that survives has met them beside others
    that no test saw either.
    """
    begin, told, skipped = time.monotonic(), dict[int, Row](), list[str]()
    log = folder / ("group-" + "-".join(str(fault.number) for fault in group) + ".log")
    left = list(group)
    tests = sorted({test for one in group for test in _longer(reached, one)})
    while left and tests:
        listed = _listed(log.with_suffix(".tests"), tests)
        code, by, how = _pytest([listed, *(f"--deselect={test}" for test in skipped)], log, left)
        if code in (0, 5):
            break
        tests = tests[tests.index(by) if by in tests else 0 :]  # those before it passed with all
        guilty = [one for one in left if _pytest([by], log.with_suffix(".alone"), [one])[0]]
        if not guilty or _pytest([by], log.with_suffix(".without"), [])[0]:
            skipped.append(by)
            continue
        left = [fault for fault in left if fault not in guilty]
        seconds = round(time.monotonic() - begin, 1)
        found = {"verdict": "caught", "by": by, "how": how, "batch": "beside others"}
        told |= {fault.number: found | {"seconds": seconds} for fault in guilty}
    seconds = round(time.monotonic() - begin, 1)
    rest = {fault.number: {"verdict": "survived", "seconds": seconds} for fault in left}
    return told | rest


def _listed(file: Path, tests: Sequence[str]) -> str:
    """Keep tests in a file, and return what tells pytest to run them."""
    file.write_text("\n".join(tests), encoding="utf-8")
    return f"@{file}"


def _caught(
    log: Path, fault: Fault, words: Sequence[str], skipped: list[str]
) -> tuple[str | None, str | None]:
    """Return the test that fails with a fault alone, and how; ``None`` twice if none does."""
    while True:
        left_out = (f"--deselect={test}" for test in skipped)
        code, by, how = _pytest([*words, *left_out], log, [fault])
        if code in (0, 5):  # 5: there was no such test
            return None, None
        if how == "collected" or by in skipped or "::" not in by:
            return by, how
        if _pytest([by], log.with_suffix(".without"), [])[0] == 0:
            return by, how
        skipped.append(by)


def _pytest(words: Sequence[str], log: Path, faults: Sequence[Fault]) -> tuple[int, str, str]:
    """Run pytest in a session of its own; return its code, the last test noted, and what it did."""
    note = log.with_suffix(".note")
    note.write_text("before any test", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{INSIDE}:{ROOT}", "FAULT_NOTE": str(note)}
    if any(fault.now.file.startswith(KERNELS) for fault in faults):
        # compiled code is kept by what its file says
        environment["XDG_CACHE_HOME"] = str(log.with_suffix(".cache"))
    if faults:
        told = {str(ROOT / fault.now.file): asdict(fault.now.place) for fault in faults}
        environment["FAULTS"] = json.dumps(told)
    command = [sys.executable, "-m", "pytest", "-p", "fault_plugin", "-p", "no:cacheprovider"]
    most = PROCESSOR[len(faults) > 1]
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["prlimit", f"--cpu={most}", *command, "-q", "-x", "-n", "0", *words],
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
