"""How solving scales with ranks and microbatches: a sweep, and its table in README.md.

    python bench/scaling/run.py

The same as `pipesat sweep scaling.toml -o DIR --processes 1`; interrupted, it goes on by the same
command. After a change of the solver, remove rows.jsonl.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->"


def main() -> None:
    command = [
        sys.executable,
        "-m",
        "pipesat",
        "sweep",
        str(HERE / "scaling.toml"),
        "-o",
        str(HERE),
    ]
    subprocess.run([*command, "--processes", "1"], check=True)
    rows = [json.loads(line) for line in (HERE / "rows.jsonl").read_text().splitlines()]
    cases = {
        (r["case"]["memory"], r["case"]["devices"], r["case"]["microbatches"]): r for r in rows
    }
    memories, devices, microbatches = (sorted({key[i] for key in cases}) for i in range(3))
    lines = [["memory", "ranks", *(f"m = {m}" for m in microbatches)]]
    lines.append(["---"] * len(lines[0]))
    for memory in memories:
        for p in devices:
            cells = [cell(cases.get((memory, p, m))) for m in microbatches]
            lines.append([memory, str(p), *cells])
    limit = tomllib.loads((HERE / "scaling.toml").read_text())["grid"]["time_limit"]
    about = (
        f"{max(r['finished'] for r in rows)[:10]}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, at most {limit} s per case.\n\n"
    )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    head, rest = (HERE / "README.md").read_text().split(BEGIN)
    _, tail = rest.split(END)
    (HERE / "README.md").write_text(f"{head}{BEGIN}{about}{table}\n{END}{tail}")


def cell(row: dict[str, Any] | None) -> str:
    """Seconds to the proof, or the gap at the limit."""
    if row is None or row["result"] is None:
        return "-" if row is None else str(row["status"])
    result = row["result"]
    if result["status"] == "optimal":
        return f"{result['wall_s']:.1f} s"
    return f"{100 * result['gap']:.2f} %"


if __name__ == "__main__":
    main()
