"""Feed mutated files to every command that reads any: ``python bench/campaign/readers.py``.

A finding is an answer that breaks the promise of docs: bad input gets exit code 2 and one line
that names the file and the path of the value; nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.readers import choose, faults, make_world, mutate, reading_only

SLOW = 5.0  # seconds of a core; the files are tiny


class Findings(NamedTuple):
    """How many mutants each command was fed, and what was wrong with its answers."""

    cases: Counter[str]
    findings: list[str]


def feed(seed: int, cases: int, seconds: float = float("inf")) -> Findings:
    """Feed ``cases`` mutants, or as many as the time allows."""
    found = Findings(Counter(), [])
    expires = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        world = Path(folder)
        make_world(world)
        stack.enter_context(reading_only())
        for number in range(cases):
            if time.monotonic() > expires:
                break
            rng = Random(f"{seed} {number}")
            command, path = choose(world, rng)
            mutant = mutate(path.name, path.read_bytes(), rng)
            begin = time.process_time()
            wrong = faults(world, command, path, mutant)
            if (took := time.process_time() - begin) > SLOW:
                wrong.append(f"took {took:.1f} s")
            found.cases[command.words[0]] += 1
            found.findings.extend(
                f"{number}: {' '.join(command.words)} | {path.name} | {mutant.done} | {fault}"
                for fault in wrong
            )
    return found


def main() -> None:
    """Print the findings, then how many mutants each command was fed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    found = feed(options.seed, options.cases, options.seconds)
    for finding in found.findings:
        print(finding)
    for command, count in sorted(found.cases.items()):
        print(f"{command:12} {count:7}")
    print(f"{sum(found.cases.values())} mutants, {len(found.findings)} findings")
    sys.exit(bool(found.findings))


if __name__ == "__main__":
    main()
