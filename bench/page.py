"""Write the tables of results.md and its picture from results/.

    python bench/page.py [--limit S] [--reduced-limit S]
        [--results DIR] [--page FILE]

What stands between `<!-- begin NAME -->` and `<!-- end NAME -->` is replaced; the rest is not
touched.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import curves
import tables
from pages import replaced, table
from rows import medians
from runner import HERE, RESULTS, Row, read_rows

REFERENCES = [HERE / name / "reference.json" for name in ("plain", "peers")]
NOT_RUN = "Not run."
OTHERS = ("plain CP-SAT", "ILP", "ILP with a start")  # none of our code is in them


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=float, default=60.0, help="rows of this time limit (60)")
    parser.add_argument("--reduced-limit", type=float, help="of ablate.py (the same)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=HERE / "results.md")
    options = parser.parse_args()
    solved, ablated, others = (
        read_rows(options.results / f"{name}.jsonl") for name in ("solve", "ablate", "others")
    )
    text = options.page.read_text()
    limits = options.limit, options.reduced_limit or options.limit
    parts = sections(solved, ablated, others, *limits)
    parts |= draw(options.page.parent, solved, options.limit)
    for name, content in parts.items():
        text = replaced(text, name, content)
    options.page.write_text(text)
    print(f"wrote {len(solved)} solves, {len(ablated)} ablated, {len(others)} others")
    return 0


def sections(
    solved: list[Row],
    ablated: list[Row],
    others: list[Row],
    limit: float,
    reduced: float,
) -> dict[str, str]:
    """The generated parts by the name of their markers."""
    plain, references = known(0), known(0) | known(1)
    by_objective = {
        objective: {name: row for (name, _), row in medians(solved, objective, limit).items()}
        for objective in ("makespan", "span")
    }
    parts = {
        "setting": setting(
            [r for r in solved if r["limit"] == limit]
            + [
                r
                for r in (*ablated, *others)
                if r["limit"] == reduced and r["variant"] not in OTHERS
            ]
        ),
        "goals": tables.goals_table(by_objective, references, plain),
        "ablation": tables.ablation_table(medians(ablated, "makespan", reduced)),
        "comparison": tables.comparison_table(medians(others, "makespan", reduced)),
        "hours": hours(read_rows(RESULTS / "hours.jsonl")),
    }
    for objective in ("makespan", "span"):
        rows = by_objective[objective]
        parts[f"groups {objective}"] = tables.group_table(rows) if rows else NOT_RUN
        each = tables.problems_table(rows, references) if rows else NOT_RUN
        parts[f"problems {objective}"] = each
    return parts


def hours(rows: list[Row]) -> str:
    """What an hour finds, how much of it after a minute, and when the last of it."""
    head = ("problem", "value", "bound", "gap, %", "a minute's", "last value, s", "last bound, s")
    lines = []
    for row in rows:
        column = [[moment[i] for moment in row["history"]] for i in range(3)]
        (_, value, bound) = [m for m in row["history"] if m[0] <= 60][-1]
        last = [column[0][own.index(own[-1])] for own in column[1:]]
        gaps = [
            100 * (1 - least / most)
            for most, least in ((row["value"], row["bound"]), (value, bound))
        ]
        lines.append(
            [
                row["problem"],
                *(f"{row[name]:,}" for name in ("value", "bound")),
                *(f"{gap:.2f}" for gap in gaps),
                *(f"{at:,.0f}" for at in last),
            ]
        )
    return table(head, lines)


def known(place: int) -> tables.References:
    """What is known of the problems of bench/plain, or else of bench/peers."""
    found: tables.References = json.loads(REFERENCES[place].read_text())
    return found


def setting(rows: list[Row]) -> str:
    """Where, when and with what the rows were made."""
    if not rows:
        return NOT_RUN
    versions = [row["versions"] for row in rows if row.get("versions")]
    runs = Counter(
        (r["problem"], r["variant"], r["objective"], r["limit"]) for r in rows if "history" in r
    )
    lines = {
        "machine": {row["machine"] for row in rows},
        "date": {row["date"] for row in rows},
        "Python": {row["python"] for row in rows},
        "OR-Tools": {version["ortools"] for version in versions},
        "pipesat": {f"{v['pipesat']}" for v in versions},
        "commit": {str(row["commit"]) for row in rows},
        "time limit, s": {f"{row['limit']:g}" for row in rows},
        "threads": {str(row["workers"]) for row in rows},
        "runs per problem, at most": {str(max(runs.values(), default=1))},
    }
    return table(("", ""), ([name, "; ".join(sorted(v))] for name, v in lines.items()))


def draw(folder: Path, solved: list[Row], limit: float) -> dict[str, str]:
    """Draw the picture, if there are rows for it, and return what shows it on the page."""
    plain = known(0)
    own = [r for r in medians(solved, "makespan", limit).values() if r["problem"] in plain]
    parts = {"quality picture": NOT_RUN}
    if own:
        curves.draw_quality(folder / "benchmark-quality.png", own, limit)
        alt = "Number of problems solved to a gap, and mean gap per group, over time"
        parts["quality picture"] = f"![{alt}](benchmark-quality.png)"
    return parts


if __name__ == "__main__":
    sys.exit(main())
