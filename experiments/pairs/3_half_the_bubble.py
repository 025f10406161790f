"""Is half of DualPipe's bubble possible at equal memory (arXiv 2503.09357)?

python experiments/pairs/3_half_the_bubble.py [--time-limit S]

The claim is taken as: a makespan that is shorter by half of the mean idle time of DualPipe's
devices, at p + 1 chunks of memory per device, DualPipe's own.
"""

from __future__ import annotations

from cases import about, bidirectional, dual, fill, keep, measured, options, share, table

CASES = [("unit", 4, 16), ("unit", 8, 20), ("dsv3", 4, 16), ("dsv3", 8, 20)]


def main() -> None:
    given, rows = options(__doc__), []
    for pairs in (True, False):
        for costs, p, m in CASES:
            problem = bidirectional(costs, p, m, p + 1, pairs=pairs)
            if given.only and not any(part in problem.name for part in given.only):
                continue
            own = dual(problem, "dualpipe")
            busy = sum(item.end - item.start for row in own.devices for item in row)
            idle = own.makespan - busy / p
            _, row = measured(problem, given)
            rows.append(row | {"dualpipe": own.makespan, "dualpipe_idle": round(idle, 1)})
    rows = keep("half-the-bubble", rows)
    heads = [
        "problem",
        "DualPipe",
        "bubble",
        "with half of it",
        "found",
        "bubble",
        "bound",
        "half?",
    ]
    lines = [
        [
            f"`{row['problem']}`",
            f"{row['dualpipe']:,}",
            share(row["dualpipe_idle"] / row["dualpipe"]),
            f"{target(row):,.{0 if row['dualpipe'] > 1000 else 1}f}",
            f"{row['value']:,}",
            share(row["bubble"]),
            f"{row['bound']:,}",
            verdict(row),
        ]
        for row in rows
    ]
    fill("half-the-bubble", about(rows) + "\n" + table(heads, lines))


def target(row: dict) -> float:
    """Return the makespan with half of DualPipe's idle time."""
    return row["dualpipe"] - row["dualpipe_idle"] / 2


def verdict(row: dict) -> str:
    """Say whether the claim holds."""
    if row["value"] <= target(row):
        return "yes"
    return "impossible" if row["bound"] > target(row) else "open"


if __name__ == "__main__":
    main()
