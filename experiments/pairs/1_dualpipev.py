"""How far is DualPipeV from the optimum at its own memory, 2p + 1 chunks per device?

python experiments/pairs/1_dualpipev.py [--time-limit S] [--only vee-dsv3-p4]
"""

from __future__ import annotations

from cases import about, dual, fill, keep, kept_schedules, measured, options, share, table, vee

from pipesat.core.claims import at_least, at_most

CASES = [("unit", 2, 8), ("unit", 4, 16), ("unit", 8, 32)]
CASES += [("dsv3", 2, 5), ("dsv3", 4, 10), ("dsv3", 8, 20)]


def main() -> None:
    given, rows = options(__doc__), []
    for costs, p, m in CASES:
        problem = vee(costs, p, m, 2 * p + 1)
        if not given.only or any(part in problem.name for part in given.only):
            _, row = measured(problem, given, kept_schedules(problem))
            rows.append(row | {"dualpipev": dual(problem, "dualpipev").makespan})
    rows = keep("dualpipev", rows)
    heads = ["problem", "DualPipeV", "found", "bound", "gap", "DualPipeV above the optimum"]
    lines = [
        [
            f"`{row['problem']}`",
            f"{row['dualpipev']:,}",
            f"{row['value']:,}",
            f"{row['bound']:,}",
            share(row["gap"]),
            between(row["dualpipev"] / row["value"] - 1, row["dualpipev"] / row["bound"] - 1),
        ]
        for row in rows
    ]
    fill("dualpipev", about(rows) + "\n" + table(heads, lines))


def between(low: float, high: float) -> str:
    """Show what is known of a share."""
    return at_least(low) if low == high else f"{at_least(low)} to {at_most(high)}"


if __name__ == "__main__":
    main()
