"""Put figures of experiments into README.md and docs/: each is kept once.

    python scripts/figures.py            fill the pages
    python scripts/figures.py --check    change nothing; exit 1 if a page differs

What stands between `<!-- begin WHAT -->` and `<!-- end -->` is replaced. WHAT is a name of FIGURES,
or `FILE NAME`: the part NAME of experiments/FILE, between marks of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pipesat.core.claims import at_most

ROOT = Path(__file__).parents[1]
BENCH, EXPERIMENTS = ROOT / "bench", ROOT / "experiments"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SOLVES = BENCH / "results" / "solve.jsonl"
LIMIT = "makespan", 60
MARKS = re.compile(r"(<!-- begin ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


class Kind(NamedTuple):
    """Problems of one kind: a file of each is in ``folder``."""

    what: str
    folder: str
    begins: tuple[str, ...]


KINDS = (
    Kind("plain problems", "plain", ("",)),
    Kind("overlapped pairs", "beyond", ("pair",)),
    Kind("microbatches that differ", "beyond", ("class",)),
    Kind("recompute and offload", "beyond", ("mode",)),
    Kind("mixtures of these", "mixed", ("mix",)),
    Kind("problems of public tools", "peers", ("peer",)),
)


class Gaps(NamedTuple):
    """The gap of every problem of a kind; 0 is a proof."""

    what: str
    gaps: tuple[float, ...]

    @property
    def proven(self) -> int:
        """How many of them are proven."""
        return self.gaps.count(0)


def kinds() -> list[Gaps]:
    """What a minute proves of every problem: one run of all, at one commit."""
    solves = map(json.loads, SOLVES.read_text().splitlines())
    rows = {row["problem"]: row for row in solves if (row["objective"], row["limit"]) == LIMIT}
    found = []
    for what, folder, begins in KINDS:
        names = [path.stem for path in (BENCH / folder / "problems").glob("*.json")]
        names = [name for name in names if name.startswith(begins)]
        if rows.keys() & names:  # a kind has rows from its first run on
            own = [rows[name] for name in names]
            found.append(Gaps(what, tuple(1 - row["bound"] / row["value"] for row in own)))
    return found


def proven() -> str:
    """The README's lines."""
    every = kinds()
    plain, rest = every[0], [gap for kind in every[1:] for gap in kind.gaps]
    of_all = sum(len(kind.gaps) for kind in every)
    return "\n".join(
        (
            f"- {sum(kind.proven for kind in every)} of all {of_all} benchmark problems are proven",
            "  optimal within a minute on two cores.",
            f"- {plain.proven} of the {len(plain.gaps)} plain ones are proven. The mean gap is",
            f"  {at_most(fmean(plain.gaps))}.",
            f"- {rest.count(0)} of the {len(rest)} with overlap, uneven microbatches or",
            f"  recomputation are proven. The mean gap is {at_most(fmean(rest))}.\n",
        )
    )


def table() -> str:
    """A row per kind of problem."""
    head = "| problems | | proven optimal | mean gap | largest gap |\n|---|---:|---:|---:|---:|\n"
    return head + "".join(
        f"| {kind.what} | {len(kind.gaps)} | {kind.proven} | {at_most(fmean(kind.gaps))} "
        f"| {at_most(max(kind.gaps))} |\n"
        for kind in kinds()
    )


def modes() -> str:
    """What waiting, recomputing, offloading and all together cost on 8 devices."""
    lines = part("memory-levers/README.md", "table").splitlines(keepends=True)
    shown = ("wait", "recompute", "offload, k = 1", "any of them, k = 1")
    return "".join(lines[:2]) + "".join(
        line for line in lines if line.startswith(tuple(f"| 8 | {what} |" for what in shown))
    )


FIGURES = {"proven": proven, "kinds": table, "modes": modes}


def part(file: str, name: str) -> str:
    """What an experiment's page has between its marks."""
    text = (EXPERIMENTS / file).read_text()
    found = re.search(rf"<!-- begin {re.escape(name)} -->\n(.*?)<!-- end", text, re.DOTALL)
    if found is None:
        sys.exit(f"experiments/{file} has no part {name}")
    return found[1]


def filled(text: str) -> str:
    """A page with all of its figures."""

    def content(match: re.Match[str]) -> str:
        name = match[2]
        made = FIGURES[name]() if name in FIGURES else part(*name.split(" ", 1))
        return match[1] + made + match[3]

    return MARKS.sub(content, text)


def main() -> int:
    """Fill the pages, or say which differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    check = parser.parse_args().check
    differ = [page for page in PAGES if filled(page.read_text()) != page.read_text()]
    for page in differ:
        sys.stdout.write(f"{page.relative_to(ROOT)} {'differs' if check else 'filled'}\n")
        if not check:
            page.write_text(filled(page.read_text()))
    return int(check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
