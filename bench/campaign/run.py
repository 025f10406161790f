"""Random problems through every command, every claim held against a judge of its own.

    python -m bench.campaign.run --minutes 60 --seed 1
    python -m bench.campaign.run --case solve/zeros:1000017

Prints progress to stderr and a table at the end; exits with 1 if anything was false.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from random import Random

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # forks want a process of one thread

from bench.campaign.commands import KINDS
from bench.campaign.pool import Outcome, run_all, run_case
from bench.campaign.process import load
from bench.pages import measured, put, table

HERE = Path(__file__).resolve().parent
PER_SEED = 1_000_000


def main(words: Sequence[str] | None = None) -> int:
    options = _options(words)
    load()
    if options.case:
        return _replay(options.case, options.output, options.quick)
    kinds = [kind for kind in KINDS if any(fnmatch(kind, word) for word in options.kinds)]
    if not kinds:
        raise SystemExit(f"no kind matches; there are {', '.join(KINDS)}")
    begin = time.monotonic()
    cases = _cases(kinds, options.seed * PER_SEED, begin + 60 * options.minutes, options.cases)
    outcomes = []
    for ending in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT in the background
        signal.signal(ending, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # ends early, with the table so far
        for outcome in run_all(cases, options.output, options.workers, options.quick):
            outcomes.append(outcome)
            _progress(outcomes)
    minutes = f"{(time.monotonic() - begin) / 60:.0f} minutes"
    text = f"{measured(f'seed {options.seed}', minutes)}\n\n{by_kind(outcomes)}"
    put(HERE / "README.md", "table", text, whole=options.readme)
    return int(any(outcome.violations for outcome in outcomes))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="no case starts later")
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", default=["*"], help="patterns such as 'solve/*'")
    parser.add_argument("--workers", type=int, default=1, help="cases at a time")
    parser.add_argument("--case", metavar="KIND:SEED", help="run this one again, and show it")
    parser.add_argument("--readme", action="store_true", help="also put the table into README.md")
    parser.add_argument("--quick", action="store_true", help="shorter limits, for a first look")
    parser.add_argument("--output", type=Path, default=HERE / "violations", metavar="DIR")
    return parser.parse_args(words)


def _cases(
    kinds: Sequence[str], seed: int, until: float, most: int | None
) -> Iterator[tuple[str, int]]:
    """Yield every kind once, in an order that the seed draws, and again with other seeds."""
    number, rng = 0, Random(seed)
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            if time.monotonic() > until or number == most:
                return
            yield kind, seed + number
            number += 1


def by_kind(outcomes: Sequence[Outcome]) -> str:
    """A row per command: cases, of how many the optimum was known, commands, what was false."""
    rows = []
    for name in [*dict.fromkeys(sorted(o.kind.partition("/")[0] for o in outcomes)), "**all**"]:
        own = [o for o in outcomes if name in (o.kind.partition("/")[0], "**all**")]
        ran, false = sum(len(o.commands) for o in own), sum(len(o.violations) for o in own)
        rows.append([name, len(own), sum(o.exact for o in own), ran, false])
    heads = ("cases of", "cases", "of known optimum", "commands run", "violations")
    return table(heads, rows, right=1)


def _progress(outcomes: Sequence[Outcome]) -> None:
    last = outcomes[-1]
    for violation in last.violations:
        print(f"{last.name}: {violation}", file=sys.stderr)
    if last.violations or len(outcomes) % 50 == 0:
        false = sum(bool(outcome.violations) for outcome in outcomes)
        print(f"{len(outcomes)} cases, {false} with violations", file=sys.stderr, flush=True)


def _replay(name: str, home: Path, quick: bool) -> int:
    kind, _, seed = name.rpartition(":")
    if kind not in KINDS or not seed.isdecimal():
        raise SystemExit(f"no case {name!r}")
    outcome = run_case(kind, int(seed), home, quick)
    for command in outcome.commands:
        print(command)
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    print(f"{len(outcome.violations)} violations; files in {home}")
    return int(bool(outcome.violations))


if __name__ == "__main__":
    sys.exit(main())
