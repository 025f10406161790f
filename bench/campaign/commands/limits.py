"""Upper limits and floors in what is printed, against exact fractions of what is written."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from campaign.case import Case
from campaign.commands.common import an_objective, family_of
from campaign.judge.limits import NUMBER, false_change, false_gaps, lower, nearest, share, upper
from campaign.judge.reading import load
from campaign.problems import PROBLEMS
from campaign.problems.layered import layers

PROBLEMS_OF = ("uniform", "uneven", "two-ways", "tight", "lengths", "tight-modes", "huge")
FAMILIES = (*PROBLEMS_OF, "layers")


def case(case: Case) -> None:
    if family_of(case) == "layers":
        document = layers(case.rng, case.rng.randint(4, 6))
        factor = case.rng.choice([1, 7, 1013, 12347])
        for layer in document["layers"]:
            layer |= {key: layer[key] * factor for key in ("F", "B", "W", "BW") if key in layer}
        case.write("layers.json", document | {"time_unit": "us", "memory_unit": "MiB"})
        case.rng.choice([plan, advise])(case)
        return
    case.write("problem.json", PROBLEMS[family_of(case)](case.rng))
    case.rng.choice([solve, compare, frontier])(case)


def words_of(case: Case, objective: str) -> list[object]:
    limit = case.rng.choice([0.05, 0.2, 1])  # short: what is proven at once has no gap
    return ["--objective", objective, "--time-limit", limit, "--workers", 1, "-o", "out"]


def in_a_line(text: str) -> str:
    return " ".join(text.split())


def result_of(case: Case) -> Any:
    path = case.folder / "out" / "result.json"
    return load(path) if path.exists() else {"value": None}


def solve(case: Case) -> None:
    ran = case.run("solve", "problem.json", *words_of(case, an_objective(case)), codes=(0, 3))
    result, text = result_of(case), in_a_line(ran.out)
    if result["value"] is None:
        return
    case.notes.add("exact")
    case.violations += false_gaps(text, result["value"], result["lower_bound"])
    if result["baseline"] is not None and (said := re.search(r"Gain [^,]*", text)):
        reference = result["baseline"]["value"]
        usual = re.search(rf"than (?:interleaved )?1F1B \({NUMBER}( ms)?\)", text)
        if usual is not None:  # what most runs use, beside the best
            reference = int(Fraction(usual[1].replace(",", "")) * (1000 if usual[2] else 1))
        wrong = false_change(said[0], result["value"], reference)
        case.expect(wrong is None, f"solve: {wrong}")


def compare(case: Case) -> None:
    """With a schedule of one's own: how far above the best, and above the optimum at most."""
    objective = an_objective(case)
    first = ["--objective", objective, "--time-limit", 0.05, "-o", "mine"]
    case.run("solve", "problem.json", *first, codes=(0, 3))
    own = case.folder / "mine" / "schedule.json"
    given = [str(own.relative_to(case.folder))] if own.exists() else []
    words = words_of(case, objective)
    ran = case.run("compare", "problem.json", *given, *words, codes=(0, 3))
    result = result_of(case)
    if result["value"] is None or not given:
        return
    case.notes.add("exact")
    text, best, bound = in_a_line(ran.out), result["value"], result["lower_bound"]
    case.violations += false_gaps(text, best, bound)
    row = re.search(rf"^{re.escape(given[0])} +(.*)$", ran.out, re.MULTILINE)
    value = objective_of(load(own)["devices"], objective)
    for pattern, reference, holds in (
        (rf"{re.escape(given[0])}: {NUMBER} % above the (?:best found|optimum)", best, nearest),
        (rf"at most {NUMBER} % above the optimum", bound, upper),
    ):
        for found in re.finditer(pattern, text):
            exact = share(value - reference, reference)
            case.expect(holds(found[1], exact), f"{found[0]!r}, {value} against {reference}")
    if row is not None and bound:
        _, to_best, to_bound, *_ = row[1].split()
        for shown, reference, holds in ((to_best, best, nearest), (to_bound, bound, upper)):
            exact = Fraction(value, reference)
            case.expect(holds(shown, exact, False), f"ratio {shown}, {value} to {reference}")


def objective_of(rows: list[list[list[Any]]], objective: str) -> int:
    ends = [(row[0][1], max(end for _, _, end in row)) for row in rows if row]
    return max(end - (start if objective == "span" else 0) for start, end in ends)


def frontier(case: Case) -> None:
    objective = an_objective(case)
    words = [*words_of(case, objective), "--caps", "points=4"]
    ran = case.run("frontier", "problem.json", *words, codes=(0, 2, 3))
    path = case.folder / "out" / "frontier.json"
    if ran.code or not path.exists():
        return
    case.notes.add("exact")
    (curve,) = load(path)["curves"]
    rows = {
        "unlimited" if point["cap"] is None else str(point["cap"]): point
        for point in curve["points"]
    }
    gaps = []
    for line in ran.out.splitlines():
        cells = line.split()
        point = rows.pop(cells[0], None) if cells and "points" not in cells else None
        if point is None or point["value"] is None or point["lower_bound"] is None:
            continue
        exact = share(point["value"] - point["lower_bound"], point["value"])
        gaps.append(exact)
        percents = re.findall(rf"{NUMBER} %", line)
        case.expect(bool(percents) and upper(percents[0], exact), f"gap of {line!r}: {exact}")
    if largest := re.search(rf"largest gap {NUMBER} %", in_a_line(ran.out)):
        case.expect(upper(largest[1], max(gaps)), f"{largest[0]!r}, it is {max(gaps)}")


def plan(case: Case) -> None:
    words = ["--devices", 2, "--microbatches", case.rng.randint(1, 5)]
    words += ["--time-limit", case.rng.choice([0.05, 0.3, 1]), "--workers", 1, "-o", "out"]
    ran = case.run("plan", "layers.json", *words, codes=(0, 2, 3))
    path = case.folder / "out" / "plan.json"
    if ran.code or not path.exists():
        return
    case.notes.add("exact")
    found, text = load(path), in_a_line(ran.out)
    if all_of := re.search(r"Proof (at most \S+ % less is possible)", text):
        case.violations += false_gaps(all_of[1], found["value"], found["lower_bound"])
    for start, end, words_ in re.findall(r"to the plan: (\d+) to (\d+), ([^%]*% \w+)", text):
        wrong = false_change(words_, int(end), int(start))
        case.expect(wrong is None, f"plan: {wrong}")


def advise(case: Case) -> None:
    rng = case.rng
    words = ["--devices", 2, "--microbatches", rng.randint(1, 4), "--for", "megatron"]
    words += ["--time-limit", rng.choice([0.5, 2]), "--workers", 1, "-o", "out", "--json"]
    ran = case.run("advise", "layers.json", *words, codes=(0, 2, 3))
    if ran.code or ran.json()["chosen"] is None:
        return
    case.notes.add("exact")
    said = ran.json()
    text, value, bound = said["advice"]["Proof"], said["chosen"]["makespan"], said["lower_bound"]
    unit = Fraction(1, 1000)  # us in ms
    if less := re.search(rf"at most {NUMBER} % less .* takes less than {NUMBER} ms", text):
        case.expect(lower(less[2], bound * unit, False), f"{less[0]!r}, the bound is {bound}")
        exact = share(value - bound, value)
        case.expect(upper(less[1], exact), f"{less[0]!r}, {value} with bound {bound}")
    rows = [row["makespan"] for row in said["rows"] if row["makespan"] > value]
    for gain in re.findall(rf"{NUMBER} % shorter", said["advice"]["Gain"]):
        wrong = [false_change(f"{gain} % shorter", value, row) for row in rows]
        case.expect(None in wrong, f"gain {gain}: {wrong}")
