"""``check`` and hand-written schedules: what is valid passes, what is spoiled is refused."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pipesat
from bench.campaign.case import Case
from bench.campaign.judge import Judged, peaks, schedule_in

Schedule = dict[str, Any]


def baseline(case: Case) -> None:
    """Every hand-written schedule: valid where it is written, nothing written where it is not."""
    judged = case.truth(case.problem(), case.objective())
    names = [*pipesat.baselines()]
    for name in {*case.rng.sample(names, 4 if case.quick else 8), "list-scheduling"}:
        schedule, code = written(case, name)
        case.expect((schedule is not None) == (code == 0), f"{name}: file, code {code}")
        if schedule is None:
            continue
        timed, broken = judged.judge(schedule)
        case.expect(timed is not None, f"{name} breaks rules: {broken[:3]}")
        case.expect(judged.truth.feasible is not False or timed is None, f"{name} fits, oracle: no")
        if timed is not None and judged.best is not None:
            case.expect(judged.best >= judged.truth.lower, f"{name} is below the optimum")


def written(case: Case, name: str) -> tuple[Any, int]:
    """The schedule that is written of a name, if any, and the exit code."""
    words = (name, "--to", "schedule", "-o", f"{name}.json")
    code = case.run("export", "problem.json", *words, codes=(0, 1, 2)).code
    return schedule_in(case.folder / f"{name}.json"), code


def case(case: Case) -> None:
    judged = case.truth(case.problem(), case.objective())
    valid = judged.truth.schedule or written(case, "list-scheduling")[0]
    if valid is None:
        return
    valid = {"source": "campaign"} | valid
    one(case, judged, valid, "valid.json")
    for number in range(4):
        spoiled = copy.deepcopy(valid)
        for _ in range(case.rng.choice([1, 1, 2])):
            modes = spoiled.get("modes") and case.rng.random() < 0.4
            (spoil_modes if modes else spoil)(case.rng, spoiled)
        one(case, judged, spoiled, f"spoiled{number}.json")


def one(case: Case, judged: Judged, schedule: Schedule, name: str) -> None:
    """Compare the checker's verdict with ours."""
    case.write(name, schedule)
    timed, broken = judged.judge(schedule)
    ran = case.run("check", "problem.json", name, "--json", codes=(0, 1, 2))
    if timed is None:
        case.expect(ran.code in (1, 2), f"{name} breaks {broken[:2]}, check passes it")
    elif case.expect(ran.code == 0, f"{name} is valid, check says {ran.out or ran.err}"):
        said, true = ran.json(), (timed.makespan, timed.span, peaks(timed))
        shown = said["makespan"], said["span"], said["peak_memory"]
        case.expect(shown == true, f"{name}: check shows {shown}, true is {true}")


def spoil(rng: Random, schedule: Schedule) -> None:
    """Change one thing, which need not make it invalid."""
    row = rng.choice([row for row in schedule["devices"] if row])
    place = rng.randrange(len(row))
    entry, other = row[place], rng.randrange(len(row))
    match rng.randrange(9):
        case 0:  # moved
            moved(rng, entry)
        case 1:
            entry[2] += rng.choice([-1, 1])
        case 2:
            del row[place]
        case 3:
            row.insert(place, list(entry))
        case 4:
            rng.choice(schedule["devices"]).append(row.pop(place))
        case 5:
            entry[0] = entry[0].replace("F", "B").replace("BBW", "BW")
        case 6:
            row[place], row[other] = row[other], row[place]
        case 7:  # everything later: still valid, if there are no copies
            for slot in (slot for all_of in schedule["devices"] for slot in all_of):
                slot[1:] = [slot[1] + 5, slot[2] + 5]
        case 8:
            row[place][0], row[other][0] = row[other][0], row[place][0]


def spoil_modes(rng: Random, schedule: Schedule) -> None:
    """Change one thing about modes or copies, which need not make it invalid."""
    modes = schedule["modes"]
    copies = [(row, n) for row in schedule.get("copies", []) for n in range(len(row))]
    what = rng.randrange(6 if copies else 2)
    row, n = rng.choice(copies) if copies else ([], 0)
    match what:
        case 0:
            del modes[rng.randrange(len(modes))]
        case 1:
            rng.choice(modes)[2] = rng.choice(["keep", "recompute", "offload", "no such"])
        case 2:
            moved(rng, row[n])
        case 3:
            del row[n]
        case 4:
            row.insert(n, list(row[n]))
        case 5:
            row[n][2] += rng.choice([-1, 1])


def moved(rng: Random, entry: list[Any]) -> None:
    """Let it run earlier or later."""
    shift = rng.choice([-2, -1, 1, 3])
    entry[1:] = [entry[1] + shift, entry[2] + shift]
