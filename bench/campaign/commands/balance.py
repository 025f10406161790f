"""``balance``: its rows' schedules judged, the bound held against them and the optimum."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from bench.campaign.case import Case
from bench.campaign.judge import Judged, close, retimed, schedule_in, value_of
from tests.oracle.reading import Document

RULES = ("given", "descending", "ascending", "both-ends")
LENGTHS = ("plain", "uniform")


def case(case: Case) -> None:
    """The schedules that ``export`` writes have the rows' times, and none is below the bound."""
    document, objective = case.problem(), case.objective()
    words: list[object] = ["--time-limit", case.rng.choice([0.2, 1, 2]), "--seed", case.seed % 7]
    if case.family in LENGTHS and "routes" not in document:
        document = with_lengths(case, document, words)
    document |= {"order": "free"}
    case.write("free.json", document)
    judged = case.truth(document, objective)
    words += ["--objective", objective, "--json"]
    ran = case.run("balance", "problem.json", *words, codes=(0, 1, 2, 3))
    case.expect(ran.code != 3 or judged.feasible is not True, "called infeasible, which it is not")
    if ran.code not in (0, 1):
        return
    found = ran.json()
    rows = [row for row in found["baselines"] if row[f"{objective}s"]]
    case.expect(bool(rows) and (ran.code == 1) == (found["best"] is None), "a code for the best")
    for row in case.rng.sample(rows, min(len(rows), 1 if case.quick else 4)):
        one_row(case, judged, row)
    whole(case, judged, found, rows)


def one_row(case: Case, judged: Judged, row: Document) -> None:
    """Hold a row against the schedules of its best rule and of another."""
    name, times = row["name"], row[f"{judged.objective}s"]
    fitting = [rule for rule in RULES if times[rule] is not None]
    best = min(fitting, key=lambda rule: times[rule], default="given")
    least = min((times[rule] for rule in fitting), default=None)
    case.expect(times["best"] == least or (least and times["best"] < least), f"{name}: {times}")
    for rule in dict.fromkeys([best, case.rng.choice(RULES)]):
        file = f"{name}-{rule}.json"
        words = ("free.json", f"{name}, {rule}", "--to", "schedule", "-o", file)
        case.run("export", *words, codes=(0, 1))
        made, said = schedule_in(case.folder / file), times[rule]
        case.expect((made is None) == (said is None), f"{name} {rule}: {said}, file: {made}")
        if made is not None:
            timed, _ = judged.judge(retimed(judged, made, judged.objective) or made)
            true = None if timed is None else value_of(timed, judged.objective)
            case.expect(true == said, f"{name} {rule}: value {said}, its schedule has {true}")


def whole(case: Case, judged: Judged, found: Document, rows: list[Document]) -> None:
    """Hold the bound, the status and the best of all against what is known."""
    columns = (row[f"{judged.objective}s"].values() for row in rows)
    times = [time for column in columns for time in column if time is not None]
    value, bound, truth = found[judged.objective], found["lower_bound"], judged.truth
    case.expect(value == min(times, default=None), f"best of all {value}, rows have {times}")
    least = judged.best if truth.upper is None else truth.upper
    case.expect(least is None or bound <= least, f"bound {bound}, though {least} exists")
    case.expect(bound <= min(times, default=bound), f"bound {bound} above a row")
    case.expect(all(time >= truth.lower for time in times), f"{times} below {truth.lower}")
    if value is None:
        return
    proven = value == bound
    case.expect(found["status"] == ("optimal" if proven else "feasible"), f"{found['status']}")
    case.expect(not proven or not truth.exact or value == truth.lower, "a false optimum")
    gap = Fraction(value - bound, value) if value else Fraction(0)
    case.expect(close(found["gap"], gap), f"gap {found['gap']} with {value} and {bound}")


def with_lengths(case: Case, document: Document, words: list[object]) -> Document:
    """Give lengths by option; return the problem with the list that the contract makes of them."""
    count = min(document["microbatches"], 5)
    lengths = [case.rng.choice([500, 1000, 1500, 4096, 333]) for _ in range(count)]
    reference, share = case.rng.choice([1000, 4096]), case.rng.choice(["0", "0.2", "1"])
    case.write("lengths.json", lengths)
    words += ["--lengths", "lengths.json", "--reference", reference, "--quadratic", share]
    entries: list[Document] = []
    for length in lengths:
        x, q = Fraction(length, reference), Fraction(share)
        held = [ceil(x * 10**4), 10**4]
        time = [ceil(((1 - q) * x + q * x * x) * 10**4), 10**4]
        first = all(entry["name"] != str(length) for entry in entries)
        more = {"time": time, "held": held, "comm": held} if first else {}
        entries.append({"name": str(length), "count": 1} | more)
    return document | {"microbatches": entries}
