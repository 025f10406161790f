"""Does it still do what it did? Every command's answers, recorded and compared.

    python bench/golden/run.py record
    python bench/golden/run.py compare
    python bench/golden/run.py compare --only heuristics 'commands/read/zero-*' --workers 2

`compare` prints each difference (what was asked, recorded, now) and exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)  # `golden` is a package; its modules are nobody's top level
sys.path.insert(1, str(HERE.parent.parent))
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"}

from golden.answer import answer  # noqa: E402
from golden.cases import Case, cases  # noqa: E402
from golden.record import Record, compare, read, write  # noqa: E402


def main() -> int:
    options = _options()
    chosen = [case for case in cases() if _wanted(case.name, options.only)]
    if not chosen:
        raise SystemExit(f"nothing of such a name: {' '.join(options.only)}")
    begin, found = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        home = (options.keep or Path(folder)).resolve()
        now = _answers(chosen, home, options.workers)
        if options.action == "record":
            kept = now if options.only == ["*"] else read() | now
            write(kept)
        else:
            for line in compare(read(), now, chosen, lambda case, more: answer(case, home, more)):
                print(line, flush=True)
                found += 1
    took = time.monotonic() - begin
    print(f"{len(chosen)} cases, {found} differences, {took:.0f} s", flush=True)
    return int(bool(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["record", "compare"])
    text = "closed-forms, heuristics, commands; or a pattern as 'commands/plan/*'"
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PART", help=text)
    parser.add_argument("--workers", "-j", type=int, default=1, help="cases at a time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the cases' files here")
    return parser.parse_args()


def _wanted(name: str, only: Sequence[str]) -> bool:
    return any(fnmatch(name, word) or name.startswith(f"{word}/") for word in only)


def _answers(chosen: Sequence[Case], home: Path, workers: int) -> Record:
    """Put the cases to forks of this process, which has loaded the product."""
    found: Record = {}
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        for number, kept in enumerate(pool.map(answer, chosen, repeat(home)), 1):
            found[chosen[number - 1].name] = kept
            if number % 100 == 0:
                print(f"{number} of {len(chosen)} cases", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
