"""How solving scales with ranks and microbatches: a sweep, and its table in README.md.

    python -m bench.scaling.run [--time-limit S]

The same as `pipesat sweep scaling.toml -o DIR --processes 1`; interrupted, it goes on by the same
command. After a change of the solver, remove rows.jsonl. With a time limit other than the file's
the table is printed alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.pages import measured, percent, put, table

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--time-limit", type=float, help="seconds per case (as the file says)")
    limit = parser.parse_args().time_limit
    with tempfile.TemporaryDirectory() as other:
        folder = HERE if limit is None else Path(other)
        command = [sys.executable, "-m", "pipesat", "sweep", str(HERE / "scaling.toml")]
        more = [] if limit is None else ["--time-limit", str(limit)]
        subprocess.run([*command, "-o", str(folder), "--processes", "1", *more], check=True)
        rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    keys = ("memory", "devices", "microbatches")
    cases = {tuple(row["case"][key] for key in keys): row for row in rows}
    memories, devices, microbatches = (sorted({key[n] for key in cases}) for n in range(3))
    lines = [
        [memory, p, *(cell(cases.get((memory, p, m))) for m in microbatches)]
        for memory in memories
        for p in devices
    ]
    text = table(("memory", "ranks", *(f"m = {m}" for m in microbatches)), lines)
    about = measured(f"at most {rows[0]['case']['time_limit']:g} s per case")
    put(HERE / "README.md", "table", f"{about}\n\n{text}", whole=limit is None)


def cell(row: dict[str, Any] | None) -> str:
    """Seconds to the proof, or the gap at the limit."""
    if row is None or row["result"] is None:
        return "-" if row is None else str(row["status"])
    result = row["result"]
    return f"{result['wall_s']:.1f} s" if result["status"] == "optimal" else percent(result["gap"])


if __name__ == "__main__":
    main()
