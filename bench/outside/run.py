"""Hold pipesat against figures of others, and fill docs/checked-against.md.

    python -m bench.outside.run              formulas and runs, half a minute
    python -m bench.outside.run --packages   also what others' packages say when they run here:
                                             some 3 GB of downloads, or --torch with a Python that
                                             has torch 2.15
Exits with 1 if a figure is farther off than its check allows.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from bench.outside import formulas, runs
from bench.outside.checks import HEADS
from bench.pages import measured, put, table
from pipesat.core.errors import ProblemWarning

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checked-against.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", action="store_true", help="install and run others' packages")
    parser.add_argument("--torch", help="a Python that has torch 2.15")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ProblemWarning)  # pairs that gain nothing are meant
    found = [*formulas.checks(), *runs.checks()]
    put(PAGE, "figures", f"{measured()}\n\n{table(HEADS, [check.row for check in found])}")
    if options.packages:
        from bench.outside import packages

        ran = [*packages.checks(options.torch)]
        print(table(HEADS, [check.row for check in ran]))
        found += ran
    for check in found:
        if not check.holds:
            print(f"{check.what}: {check.said} and {check.ours}")
    return int(not all(check.holds for check in found))


if __name__ == "__main__":
    sys.exit(main())
