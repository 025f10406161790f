"""What changes when F with F, F with W or B with W may pair too?

python experiments/pairs/4_pair_any.py [--time-limit S]

In a V at DualPipeV's memory. The other pairs take 0.75 (F with F or W) and 0.78 (B with W) of their
sum: an assumption, nobody has published them.
"""

from __future__ import annotations

from cases import SHARES, about, fill, keep, kept_schedules, measured, options, share, table, vee

from pipesat.core.metrics import pair_counts

MORE = [(), *((name,) for name in SHARES), tuple(SHARES)]


def main() -> None:
    given, rows = options(__doc__), []
    for costs, p, m in (("dsv3", 2, 5), ("dsv3", 4, 10)):
        found = []  # what may pair less may run here, too: so more kinds are never worse
        for more in MORE:
            problem = vee(costs, p, m, 2 * p + 1, more)
            if given.only and not any(part in problem.name for part in given.only):
                continue
            starts = [*(found if len(more) > 1 else found[:1]), *kept_schedules(problem)]
            result, row = measured(problem, given, starts)
            found += [result.schedule] if result.schedule else []
            counts = {} if result.schedule is None else pair_counts(result.schedule)
            rows.append(row | {"p": p, "more": list(more), "pairs": counts})
    rows = keep("pair-any", rows)
    rows = [joined(row, rows) for row in rows]
    alone = {row["p"]: row for row in rows if not row["more"]}
    heads = ["p", "may pair besides F+BW", "found", "bound", "gap", "saved", "pairs that run"]
    lines = [
        [
            str(row["p"]),
            ", ".join(row["more"]) or "nothing",
            f"{row['value']:,}",
            f"{row['bound']:,}",
            share(row["gap"]),
            share(1 - row["value"] / alone[row["p"]]["value"]),
            ", ".join(f"{count} {kinds}" for kinds, count in row["pairs"].items()),
        ]
        for row in rows
    ]
    fill("pair-any", about(rows) + "\n" + table(heads, lines))


def joined(row: dict, rows: list[dict]) -> dict:
    """Take over what others show: schedules of fewer kinds run here, bounds of more hold."""
    of_p = [other for other in rows if other["p"] == row["p"]]
    best = min((x for x in of_p if set(x["more"]) <= set(row["more"])), key=lambda x: x["value"])
    if row["value"] > best["value"]:
        row = row | {key: best[key] for key in ("value", "pairs")}
    bound = max(x["bound"] for x in of_p if set(x["more"]) >= set(row["more"]))
    return row | {"bound": bound, "gap": (row["value"] - bound) / row["value"]}


if __name__ == "__main__":
    main()
