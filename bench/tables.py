"""The Markdown tables of results.md, from rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from statistics import fmean

from goals import GOALS, MEANS, Goal, MeanGoal, Reference
from pages import percent, table
from rows import cap, gap_of, group_of, proven, sizes
from runner import Row

References = dict[str, Reference]
Medians = dict[str, dict[str, Row]]
"""Per objective and problem."""


def seconds(time: float | None) -> str:
    """One digit after the point, or ``-``."""
    return "-" if time is None else f"{time:.1f}"


def judged(goal: Goal, medians: Medians, references: References) -> list[tuple[Row, bool]]:
    """The rows that a goal covers, and whether each meets it."""
    rows = medians.get(goal.objective, {})
    covered = [rows[name] for name in sorted(rows) if goal.covers(name)]
    return [(row, goal.passes(row, references.get(row["problem"], {}))) for row in covered]


def goals_table(medians: Medians, references: References, plain: Collection[str]) -> str:
    """Every goal, met or missed, with the gaps of its problems; then those of means.

    ``plain`` are the problems of bench/plain, which goals of all are about.
    """
    lines: list[list[object]] = []
    for goal in GOALS:
        rows = judged(goal, medians, references)
        if not rows:
            lines.append([goal.group, goal.objective, goal.text, "not run", "-", "-", "-"])
            continue
        met = sum(passes for _, passes in rows)
        gaps = [gap_of(row) for row, _ in rows]
        verdict = "**met**" if met == len(rows) else f"missed by {len(rows) - met}"
        largest = f"{percent(max(gaps))}"
        lines.append(
            [
                goal.group,
                goal.objective,
                goal.text,
                verdict,
                f"{met} of {len(rows)}",
                percent(fmean(gaps)),
                largest,
            ]
        )
    lines += [_mean_line(goal, medians, plain) for goal in MEANS]
    head = ("problems", "objective", "goal", "", "met by", "mean gap", "largest gap")
    return table(head, lines)


def _mean_line(goal: MeanGoal, medians: Medians, plain: Collection[str]) -> list[object]:
    rows = [
        row
        for name, row in medians.get(goal.objective, {}).items()
        if (name in plain if goal.covers is None else goal.covers(name))
    ]
    text = f"mean gap <= {100 * goal.gap:g} %"
    if goal.proven:
        text = f"{goal.proven} proven, {text}"
    short = goal.covers is None and len(rows) < len(plain)
    if short or not rows:
        return [goal.group, goal.objective, text, "not run", len(rows), "-", "-"]
    gaps, done = [gap_of(row) for row in rows], sum(map(proven, rows))
    ahead = [row for row in rows if row["baseline"] and row["baseline"][1] < row["value"]]
    is_met = done >= goal.proven and fmean(gaps) <= goal.gap and not ahead
    return [
        f"{goal.group} {len(rows)}",
        goal.objective,
        text,
        "**met**" if is_met else "missed",
        f"{done} proven",
        percent(fmean(gaps)),
        percent(max(gaps)),
    ]


def problems_table(rows: dict[str, Row], references: References) -> str:
    """One line per problem, group after group."""
    head = (
        "problem",
        "best baseline",
        "value",
        "bound",
        "gap",
        "status",
        "first s",
        "best s",
        "proof s",
        "MiB",
        "bound by",
        "to the record",
    )
    lines = [problem_line(row, references) for row in sorted(rows.values(), key=_place)]
    return table(head, lines)


def _place(row: Row) -> tuple[object, ...]:
    name = row["problem"]
    p, m = sizes(name)
    return (group_of(name), name.split("-p")[0], p, m, -cap(name) if "cap" in name else 0, name)


def problem_line(row: Row, references: References) -> list[object]:
    """One problem: ours beside the best baseline and the record of reference.json."""
    baseline = row.get("baseline")
    record = references.get(row["problem"], {}).get("best_known_makespan")
    value = row.get("value")
    against = None
    if record and value is not None and row["objective"] == "makespan":
        against = (value - record) / record
    status = "**optimal**" if proven(row) else row["status"]
    return [
        row["problem"],
        f"{baseline[1]} ({baseline[0]})" if baseline else "-",
        value,
        row.get("bound"),
        percent(row.get("gap")),
        status,
        seconds(row.get("first_s")),
        seconds(row.get("best_s")),
        seconds(row.get("proof_s")),
        row.get("peak_mib"),
        row.get("bound_source"),
        percent(against),
    ]


def group_table(rows: dict[str, Row]) -> str:
    """Per group: how many are proven, the mean and the largest gap."""
    groups: dict[str, list[Row]] = {}
    for row in rows.values():
        groups.setdefault(group_of(row["problem"]), []).append(row)
    lines = [
        [
            group,
            len(members),
            sum(map(proven, members)),
            percent(fmean(map(gap_of, members))),
            percent(max(map(gap_of, members))),
        ]
        for group, members in sorted(groups.items())
    ]
    return table(("group", "problems", "optimal", "mean gap", "largest gap"), lines)


def ablation_table(medians: dict[tuple[str, str], Row]) -> str:
    """Per part: what happens without it. Then the gap of every problem without each part."""
    variants = list(dict.fromkeys(variant for _, variant in medians))
    problems = [
        name
        for name in dict.fromkeys(name for name, _ in medians)
        if all((name, variant) in medians for variant in variants)
    ]
    if not problems:
        return "Not run."
    lines = []
    for variant in variants:
        rows = [medians[name, variant] for name in problems]
        solved = [row for row in rows if row.get("value") is not None]
        full = [medians[row["problem"], variants[0]] for row in solved]
        pairs = [(a, b) for a, b in zip(solved, full, strict=True) if b.get("value")]
        value = [a["value"] / b["value"] - 1 for a, b in pairs]
        bound = [a["bound"] / b["bound"] - 1 for a, b in pairs if b["bound"]]
        lines.append(
            [
                variant if variant == variants[0] else f"without `{variant}`",
                sum(map(proven, rows)),
                percent(fmean(map(gap_of, rows))),
                percent(max(map(gap_of, rows))),
                percent(fmean(value) if value else None),
                percent(fmean(bound) if bound else None),
            ]
        )
    head = ("", "optimal", "mean gap", "largest gap", "value, mean change", "bound, mean change")
    each = [[name, *(_short(medians[name, variant]) for variant in variants)] for name in problems]
    columns = [variants[0], *(f"without `{variant}`" for variant in variants[1:])]
    return f"{table(head, lines)}\n\nGap, or the seconds of the proof, of each:\n\n" + table(
        ("problem", *columns), each
    )


def _short(row: Row) -> str:
    if proven(row):
        return f"{row['proof_s']:.1f} s"
    return percent(row["gap"]) if row.get("gap") is not None else row["status"]


def comparison_table(medians: dict[tuple[str, str], Row]) -> str:
    """Per problem, what each method ends with: value, bound, and seconds if it has a proof."""
    methods = list(dict.fromkeys(variant for _, variant in medians))
    problems = list(dict.fromkeys(name for name, _ in medians))
    if not problems:
        return "Not run."
    lines = [
        [name, *(_ended(medians.get((name, method))) for method in methods)] for name in problems
    ]
    tally = Counter(method for (_, method), row in medians.items() if proven(row))
    lines.append(["**proven optimal**", *(f"{tally[m]} of {len(problems)}" for m in methods)])
    return table(("problem", *methods), lines)


def _ended(row: Row | None) -> str:
    if row is None:
        return "not run"
    if proven(row):
        return f"{row['value']}, proven in {row['proof_s']:.1f} s"
    if row.get("value") is not None:
        return f"{row['value']}, gap {percent(row['gap'])}"
    if row["status"] == "unknown":
        return f"no schedule in {row['limit']:g} s"
    return f"{row['status']}: {row['why']}" if row.get("why") else str(row["status"])
