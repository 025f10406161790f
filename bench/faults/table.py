"""Results: the frozen table, README's copy of it, and what is no longer caught."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import put, table

HERE = Path(__file__).resolve().parent
RESULTS, JUDGED = HERE / "results.json", HERE / "judged.json"
Row = dict[str, Any]


def read_results() -> list[Row]:
    """Return the frozen rows; none before the first run."""
    found: list[Row] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return found


def write_results(rows: Sequence[Row]) -> None:
    kept = [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
    text = ",\n".join(json.dumps(row) for row in kept)
    RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def no_longer_caught(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    """Return the rows of faults that were caught before and survive now."""
    caught = {row["number"] for row in before if row["verdict"] == "caught"}
    return [row for row in now if row["verdict"] != "caught" and row["number"] in caught]


def judged() -> dict[int, str]:
    """Why a fault changes nothing that anyone can see: written by hand, a reason each."""
    if not JUDGED.exists():
        return {}
    return {int(number): why for number, why in json.loads(JUDGED.read_text()).items()}


def counts(rows: Sequence[Row]) -> str:
    """Return the counts by package as a table."""
    harmless, lines = judged(), []
    for group in [*dict.fromkeys(row["group"] for row in rows), "all"]:
        mine = [row for row in rows if group in (row["group"], "all")]
        left = [row for row in mine if row["verdict"] == "survived"]
        unmet = sum(not row["met_by"] for row in left)
        found = sum(row["verdict"] == "caught" for row in mine)
        nothing = sum(row["number"] in harmless for row in left)
        longer = sum(row["verdict"] == "open" for row in mine)
        name = f"**{group}**" if group == "all" else group
        lines.append([name, len(mine), found, len(left), unmet, nothing, longer])
    heads = ("package", "drawn", "caught", "survived", "of these met by no test")
    heads = (*heads, "changes nothing", "longer tests to come")
    kinds = Counter(row["kind"] for row in rows)
    caught = Counter(row["kind"] for row in rows if row["verdict"] == "caught")
    shares = ", ".join(f"{kind} {caught[kind]} of {kinds[kind]}" for kind in sorted(kinds))
    text = table(heads, lines, right=1)
    return f"{text}\n\nCaught by kind: {shares}."


def keep(readme: Path, rows: Sequence[Row], commit: str) -> None:
    """Put the table into README, between its marks."""
    ran = sum(row["at"] == commit for row in rows)
    told = f"At {commit}; {ran} ran there, the others' results are those of an earlier commit:"
    told = f"At {commit}:" if ran == len(rows) else told
    put(readme, "table", f"{told}\n\n{counts(rows)}")
