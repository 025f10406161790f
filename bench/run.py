"""The whole benchmark, one script after the other; an interrupted run goes on where it stopped.

python bench/run.py [--plan] [--limit S] [--workers N]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from runner import HERE, RESULTS

from pipesat.core.usable_cores import usable_cores

BEYOND = [
    x for name in ("beyond", "mixed", "peers") for x in ("--folder", f"{HERE}/{name}/problems")
]
SOLVES = (
    ("solve.py",),
    ("solve.py", *BEYOND),
    ("solve.py", "--objective", "span"),
    ("ablate.py",),
    ("others.py",),
)
DURATION = re.compile(r"(\d+) h (\d+) min")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plan", action="store_true", help="only say how long it would take")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per solve (60)")
    parser.add_argument("--workers", type=int, default=usable_cores(), help="threads")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the rows")
    parser.add_argument("--page", type=Path, default=HERE / "results.md")
    options = parser.parse_args()
    limit = f"{options.limit:g}"
    commands = []
    for script, *arguments in SOLVES:
        name = script.removesuffix(".py")
        out = str(options.results / f"{name}.jsonl")
        shared = ["--limit", limit, "--workers", str(options.workers), "--out", out]
        commands.append([sys.executable, str(HERE / script), *arguments, *shared])
    if options.plan:
        return plan(commands)
    commands.insert(0, [sys.executable, str(HERE / "more" / "generate.py"), "--check"])
    places = ["--results", str(options.results), "--page", str(options.page)]
    commands.append([sys.executable, str(HERE / "page.py"), "--limit", limit, *places])
    failed = [subprocess.run(command, check=False).returncode for command in commands]
    return 1 if any(failed) else 0


def plan(commands: list[list[str]]) -> int:
    """Print every script's plan and the sums of their durations."""
    most = expected = 0
    for command in commands:
        done = subprocess.run([*command, "--plan"], check=True, capture_output=True, text=True)
        print(done.stdout, end="")
        minutes = [60 * int(h) + int(m) for h, m in DURATION.findall(done.stdout)]
        most += minutes[0]
        expected += minutes[-1]
    print(f"in all at most {most / 60:.1f} h, {expected / 60:.1f} h going by earlier rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
