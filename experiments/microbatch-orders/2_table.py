"""Print what each way of ordering microbatches takes over the bound: means over draws.

python experiments/microbatch-orders/2_table.py
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from cases import DISTRIBUTIONS, WAYS, Case, known


def over_bound() -> dict[Case, dict[str, float]]:
    """Return each case's makespans over its bound, less 1, in percent."""
    return {
        case: {way: 100 * (values[way] / values["bound"] - 1) for way in WAYS}
        for case, values in known().items()
    }


def main() -> None:
    """Print a row per distribution, then one per size of pipeline."""
    cases = over_bound()
    print(f"{len(cases)} cases, makespan over the proven bound, in percent\n")
    _table("lengths", {name: name for name in DISTRIBUTIONS}, lambda case: case.distribution)
    sizes = sorted({(case.devices, case.microbatches) for case in cases})
    _table(
        "devices, microbatches",
        {size: f"{size[0]}, {size[1]}" for size in sizes},
        lambda case: (case.devices, case.microbatches),
    )
    proven = sum(values["ours"] == 0 for values in cases.values())
    least = [min(values[way] for way in WAYS[:-1]) for values in cases.values()]
    ours = [values["ours"] for values in cases.values()]
    better = sum(mine < rule for mine, rule in zip(ours, least, strict=True))
    print(f"ours is proven optimal in {proven}, shorter than every rule in {better}")
    worse = sum(mine > rule for mine, rule in zip(ours, least, strict=True))
    print(f"and longer than a rule in {worse}")


def _table(title: str, groups: dict, group_of) -> None:  # type: ignore[no-untyped-def, type-arg]
    found = defaultdict(list)
    for case, values in over_bound().items():
        found[group_of(case)].append(values)
    print(f"| {title} | draws | {' | '.join(WAYS)} |")
    print("|---|" + "---:|" * (1 + len(WAYS)))
    for key, name in groups.items():
        rows = found[key]
        if rows:
            means = [f"{fmean(row[way] for row in rows):.1f}" for way in WAYS]
            print(f"| {name} | {len(rows)} | {' | '.join(means)} |")
    print()


if __name__ == "__main__":
    main()
