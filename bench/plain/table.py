"""Write the tables of instances.md from best_known.json and reference.json.

    python -m bench.plain.table [--check]

What stands between the page's markers is replaced. `--check` writes nothing: exit status 1 if the
page is not what would be written.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import fmean

from bench.pages import percent, replaced, table
from bench.plain.library import HERE, OBJECTIVES, Library, Record
from pipesat.core.claims import at_most
from pipesat.schedule.schedule import Objective

PAGE = "instances.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--folder", type=Path, default=HERE, help="of the library")
    options = parser.parse_args()
    library = Library(options.folder)
    if options.check:
        page = library.folder / PAGE
        same = not library.dropped and page.read_text() == filled(page.read_text(), library)
        print("\n".join(library.dropped) or f"{PAGE} is {'' if same else 'NOT '}up to date")
        return 0 if same else 1
    print(write(library))
    return 0


def write(library: Library) -> str:
    """Write the page; returns what was done."""
    page = library.folder / PAGE
    page.write_text(filled(page.read_text(), library))
    return f"wrote {PAGE}: {len(library.names)} problems"


def filled(text: str, library: Library) -> str:
    """The page with every generated part as it should be."""
    parts = {
        "summary": summary(library),
        "makespan": problems(library, "makespan"),
        "span": problems(library, "span"),
    }
    for name, content in parts.items():
        text = replaced(text, name, content)
    return text


def summary(library: Library) -> str:
    """How many problems there are, how many are settled, and the digest to cite."""
    lines = []
    for objective in OBJECTIVES:
        pairs = [pair for name in library.names if (pair := known(library, name, objective))]
        if not pairs:
            continue
        gaps = [gap_of(value, bound) for value, bound in pairs]
        lines.append(
            f"- **{objective}**: known for {len(pairs)}, proven optimal for {gaps.count(0)}, "
            f"mean gap {at_most(fmean(gaps))}, largest {at_most(max(gaps))}"
        )
    head = f"{len(library.names)} problems, digest `{library.digest}`."
    return "\n".join([head, "", *lines]) if lines else head


def problems(library: Library, objective: Objective) -> str:
    """One line per problem of which a value is known, group after group."""
    reference = library.folder / "reference.json"
    references = json.loads(reference.read_text()) if reference.exists() else {}
    head = (
        "problem",
        "devices",
        "stages",
        "microbatches",
        "ops",
        "published",
        "best known",
        "bound",
        "gap",
        "found by",
        "date",
        "check it by",
        "bound by",
    )
    rows = []
    for name in sorted(library.names, key=natural):
        pair = known(library, name, objective)
        if pair is None:
            continue
        value, bound = pair
        data = library.problem(name)
        rows.append(
            [
                f"[{name}](problems/{name}.json)",
                len(data.devices),
                len(data.stages),
                sum(route.microbatches for route in data.routes),
                f"{data.op_count:,}",
                published(references.get(name, {}), objective),
                f"{value.amount:,}",
                f"{bound.amount:,}",
                percent(gap_of(value, bound)) if gap_of(value, bound) else "**optimal**",
                value.by,
                value.date,
                check_by(value),
                bound.by,
            ]
        )
    return table(head, rows) if rows else "Nothing is known yet."


def known(library: Library, name: str, objective: Objective) -> tuple[Record, Record] | None:
    """Value and bound, where both are known."""
    value = library.record(name, objective, "value")
    bound = library.record(name, objective, "bound")
    return None if value is None or bound is None else (value, bound)


def gap_of(value: Record, bound: Record) -> float:
    """``(value - bound) / value``; 0 where both are 0."""
    return (value.amount - bound.amount) / value.amount if value.amount else 0.0


def published(reference: dict[str, dict[str, dict[str, int]]], objective: Objective) -> str:
    """The best of the published schedulers that keeps to the memory, with its name."""
    fitting = {
        name: peer[objective]
        for name, peer in reference.get("peers", {}).items()
        if peer.get("within_cap") and objective in peer
    }
    if not fitting:
        return "-"
    best = min(fitting, key=lambda name: fitting[name])
    return f"{fitting[best]:,} ({best})"


def check_by(value: Record) -> str:
    """What to look at, or to do, to see that the value is real."""
    if "schedule" in value.backed_by:
        path = value.backed_by["schedule"]
        return f"[schedule]({path})"
    if "baseline" in value.backed_by:
        return f"baseline {value.backed_by['baseline']}"
    raise AssertionError(f"a value without a schedule: {value}")


def natural(name: str) -> list[tuple[int, float, str]]:
    """Order numbers in names by their value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(1, float(p), "") if p[:1].isdigit() else (0, 0.0, p) for p in parts]


if __name__ == "__main__":
    sys.exit(main())
