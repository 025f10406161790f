"""``balance``: its rows' schedules judged, the bound held against them and the optimum."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

from campaign.case import Case, close
from campaign.commands.common import a_problem, an_objective, family_of, schedule_in, truth_of
from campaign.judge import values
from campaign.judge.claims import Judged
from campaign.judge.reading import Pipe
from campaign.judge.timing import retimed

RULES = ("given", "descending", "ascending", "both-ends")
LENGTHS = ("chain", "chunks", "uniform")
Document = dict[str, Any]


def case(case: Case) -> None:
    """The schedules that ``baseline`` writes have the rows' times, and so has the best order."""
    document = a_problem(case)
    words: list[object] = ["--time-limit", case.rng.choice([0.2, 1, 2]), "--seed", case.seed % 7]
    if family_of(case) in LENGTHS:
        document = with_lengths(case, document, words)
    if "microbatches" in document or "routes" in document:
        document = document | {"order": "free"}
    case.write("free.json", document)
    objective = an_objective(case)
    words += ["--objective", objective]
    judged = truth_of(case, document, objective)
    ran = case.run("balance", "problem.json", *words, "--json", codes=(0, 1, 2, 3))
    case.expect(ran.code != 3 or judged.feasible is not True, "called infeasible, which it is not")
    if ran.code not in (0, 1):
        return
    found = ran.json()
    rows = [row for row in found["baselines"] if row[f"{objective}s"]]
    case.expect(bool(rows) and (ran.code == 1) == (found["best"] is None), "a code for the best")
    for row in rows:
        best, *by_rule = (row[f"{objective}s"][rule] for rule in ("best", *RULES))
        known = [time for time in by_rule if time is not None]
        said = f"{row['name']}: best {best}, by rule {by_rule}"
        case.expect(not known if best is None else best <= min(known, default=best), said)
    for row in case.rng.sample(rows, min(len(rows), 1 if case.quick else 4)):
        one_row(case, judged, row)
    whole(case, judged, found, rows)


def one_row(case: Case, judged: Judged, row: Document) -> None:
    """Hold a row against the schedules of its best rule, of that in its best order, and another."""
    name, times = row["name"], row[f"{judged.objective}s"]
    fitting = [rule for rule in RULES if times[rule] is not None]
    best = min(fitting, key=lambda rule: times[rule], default=None)  # the first of equal ones
    for rule in dict.fromkeys([best or "given", case.rng.choice(RULES)]):
        file = f"{name}-{rule}.json"
        words = ("free.json", f"{name}, {rule}", "--to", "schedule", "-o", file)
        case.run("export", *words, codes=(0, 1))
        made, said = schedule_in(case.folder / file), times[rule]
        case.expect((made is None) == (said is None), f"{name} {rule}: {said}, file: {made}")
        if made is None:
            continue
        true = value_of(judged, made)
        case.expect(true == said, f"{name} {rule}: value {said}, its schedule has {true}")
        if rule == best:
            true = value_of(judged, entering(judged.pipe, made, row["order"]))
            case.expect(true == times["best"], f"{name}: best {times['best']}, in its order {true}")


def value_of(judged: Judged, schedule: Document) -> int | None:
    """Return the least value of a schedule's order; ``None`` where it breaks a rule."""
    timed, _ = judged.judge(retimed(judged.pipe, schedule, judged.objective) or schedule)
    return None if timed is None else values.value(timed, judged.objective)


def entering(pipe: Pipe, schedule: Document, order: list[list[int]]) -> Document:
    """Let microbatches change places so that the first stages run them in an order."""
    change: dict[tuple[int, int], int] = {}
    for (route, _), wanted in zip(pipe.routes, order, strict=True):
        row = schedule["devices"][pipe.stages[route[0]].device]
        first = [words for slot in row for words in ops_of(slot[0]) if words[:2] == (route[0], "F")]
        now = [microbatch for _, _, microbatch in first]
        for stage, (old, new) in product(route, zip(now, wanted, strict=True)):
            change[stage, old] = new

    def renamed(text: str) -> str:
        ops = [f"{s}{kind}{change[s, m]}" for s, kind, m in ops_of(text)]
        return ops[0] if len(ops) == 1 else f"({'+'.join(ops)})"

    rows = [[[renamed(text), *times] for text, *times in row] for row in schedule["devices"]]
    return schedule | {"devices": rows}


def ops_of(text: str) -> list[tuple[int, str, int]]:
    """Return (stage, kind, microbatch) of an op, or of both of a pair."""
    found = []
    for op in text.strip("()").split("+"):
        stage = op.rstrip("0123456789").rstrip("FBW")
        number = op[len(op.rstrip("0123456789")) :]
        found.append((int(stage), op[len(stage) : len(op) - len(number)], int(number)))
    return found


def whole(case: Case, judged: Judged, found: Document, rows: list[Document]) -> None:
    """Hold the bound, the status and the best of all against what is known."""
    times = [
        time for row in rows for time in row[f"{judged.objective}s"].values() if time is not None
    ]
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
    entries, seen = [], set()
    for length in lengths:
        x, q = Fraction(length, reference), Fraction(share)
        held = [ceil(x * 10**4), 10**4]
        time = [ceil(((1 - q) * x + q * x * x) * 10**4), 10**4]
        entry: Document = {"name": str(length), "count": 1}
        entries.append(
            entry | ({} if length in seen else {"time": time, "held": held, "comm": held})
        )
        seen.add(length)
    return document | {"microbatches": entries}
