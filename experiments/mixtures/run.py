"""Solve the problems that mix pairs, lists and modes, and what each consists of.

    python run.py solve [--seconds 60] [--only NAME ...]          results.json
    python run.py parts [--seconds 15] [--python OTHER/bin/python]  parts.json
    python run.py table

``parts`` may run another version: the part is no part of this one's search.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROBLEMS = HERE.parent / "bench" / "mixed" / "problems"
RESULTS, PARTS = HERE / "results.json", HERE / "parts.json"
SOON = 5.0  # seconds after which there must be a schedule

Document = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("solve", "parts", "table"))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    given = parser.parse_args()
    for path in sorted(PROBLEMS.glob("*.json")):
        if given.what == "table" or not any(part in path.stem for part in given.only):
            continue
        document = json.loads(path.read_text())
        if given.what == "solve":
            found = solved(given.python, document, given.seconds or 60.0, given.workers)
            _keep(RESULTS, path.stem, found)
        else:
            for name, part in parts(document):
                found = solved(given.python, part, given.seconds or 15.0, given.workers)
                _keep(PARTS, f"{path.stem}: {name}", found)
    print(table())


def solved(python: str, document: Document, seconds: float, workers: int) -> Document:
    """Return value and bound that a version of pipesat finds, and when its first schedule came."""
    program = (
        "import json, sys, pipesat; from pipesat.files.problem_file import parse_problem\n"
        "r = pipesat.solve(parse_problem(json.load(open(sys.argv[1]))), "
        "time_limit=float(sys.argv[2]), workers=int(sys.argv[3]))\n"
        "first = next((x.seconds for x in r.history if x.value is not None), None)\n"
        "print(json.dumps([r.status, r.value, r.lower_bound, first]))"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        file_folder = Path(file.name).parent  # not this tree: another version may be asked
        command = [python, "-c", program, file.name, str(seconds), str(workers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=file_folder)
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1]}
    status, value, bound, first = json.loads(done.stdout.splitlines()[-1])
    return {"status": status, "value": value, "bound": bound, "first": first}


def parts(document: Document) -> Iterator[tuple[str, Document]]:
    """Yield the problem without pairs, with each single mode, and with the order given."""
    if "overlap" in document:
        alone = copy.deepcopy(document)
        del alone["overlap"]
        yield "no pairs", alone
    names = [mode["name"] for stage in document["stages"] for mode in stage.get("modes", [])]
    for name in dict.fromkeys(["keep", *names] if names else []):
        alone = copy.deepcopy(document)
        for stage in alone["stages"]:
            own = [mode for mode in stage.pop("modes", []) if mode["name"] == name]
            if own:
                stage["modes"] = own
        if name == "keep":
            alone.pop("mode_choice", None)
        yield name, alone
    if document.get("order", "given") != "given":
        yield "order given", copy.deepcopy(document) | {"order": "given"}


def table() -> str:
    """Return both files as one table."""
    results, alone = (json.loads(p.read_text()) if p.exists() else {} for p in (RESULTS, PARTS))
    lines = [
        "| problem | value | bound | gap | first schedule | best part |",
        "|---|---|---|---|---|---|",
    ]
    gaps: dict[bool, list[float]] = {True: [], False: []}
    for name, found in results.items():
        value, bound = found["value"], found["bound"]
        gap = 100 * (1 - bound / value)
        gaps["pairs" in name or "all" in name].append(gap)
        own = {k.split(": ")[1]: v for k, v in alone.items() if k.startswith(f"{name}: ")}
        known = {part: row["value"] for part, row in own.items() if row.get("value")}
        best = min(known, key=lambda part: known[part], default=None)
        said = "" if best is None else f"{best}: {known[best]:,}"
        cells = [f"`{name}`", f"{value:,}", f"{bound:,}", f"{gap:.2f} %"]
        lines.append("| " + " | ".join([*cells, f"{found['first']:.1f} s", said]) + " |")
    for paired, title in ((False, "without pairs"), (True, "with pairs")):
        if gaps[paired]:
            lines.append(
                f"| mean {title} | | | {sum(gaps[paired]) / len(gaps[paired]):.2f} % | | |"
            )
    return "\n".join(lines)


def _keep(path: Path, name: str, found: Document) -> None:
    print(name, found, flush=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
