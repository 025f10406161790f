"""``check``: valid schedules pass, spoiled ones are refused, as the own rules say."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from campaign.case import Case
from campaign.commands.common import a_problem, an_objective, schedule_in, truth_of
from campaign.judge import values
from campaign.judge.claims import Judged
from campaign.judge.rules import broken_rules
from campaign.judge.timed import read_timed

Schedule = dict[str, Any]


def case(case: Case) -> None:
    judged = truth_of(case, a_problem(case), an_objective(case))
    valid = judged.truth.schedule
    if valid is None:
        case.run(
            "export",
            "problem.json",
            "list-scheduling",
            "--to",
            "schedule",
            "-o",
            "l.json",
            codes=(0, 1, 2),
        )
        valid = schedule_in(case.folder / "l.json")
    if valid is None:
        return
    valid = {"source": "campaign"} | valid | {"problem_sha256": judged.sha256}
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
    broken = broken_rules(judged.pipe, judged.sha256, schedule)
    ran = case.run("check", "problem.json", name, "--json", codes=(0, 1, 2))
    if not broken:
        timed, _ = read_timed(schedule, judged.pipe.devices)
        if case.expect(ran.code == 0, f"{name} is valid, check says {ran.out or ran.err}"):
            said = ran.json()
            true = (values.makespan(timed), values.span(timed), values.peaks(judged.pipe, timed))
            shown = (said["makespan"], said["span"], said["peak_memory"])
            case.expect(shown == true, f"{name}: check shows {shown}, true is {true}")
    else:
        case.expect(ran.code in (1, 2), f"{name} breaks {broken[:2]}, check passes it")


def spoil(rng: Random, schedule: Schedule) -> None:
    """Change one thing, which need not make it invalid."""
    rows = [row for row in schedule["devices"] if row]
    row = rng.choice(rows)
    place = rng.randrange(len(row))
    entry = row[place]
    match rng.randrange(9):
        case 0:  # moved
            shift = rng.choice([-2, -1, 1, 3])
            entry[1:] = [entry[1] + shift, entry[2] + shift]
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
            other = rng.randrange(len(row))
            row[place], row[other] = row[other], row[place]
        case 7:  # everything later: still valid
            for all_of in schedule["devices"]:
                for slot in all_of:
                    slot[1:] = [slot[1] + 5, slot[2] + 5]
        case 8:
            other = rng.randrange(len(row))
            row[place][0], row[other][0] = row[other][0], row[place][0]


def spoil_modes(rng: Random, schedule: Schedule) -> None:
    """Change one thing about modes or copies, which need not make it invalid."""
    modes = schedule["modes"]
    copies = [(row, n) for row in schedule.get("copies", []) for n in range(len(row))]
    match rng.randrange(6) if copies else rng.randrange(2):
        case 0:
            del modes[rng.randrange(len(modes))]
        case 1:
            rng.choice(modes)[2] = rng.choice(["keep", "again", "host", "no such"])
        case 2:  # moved
            row, n = rng.choice(copies)
            shift = rng.choice([-2, -1, 1, 3])
            row[n][1:] = [row[n][1] + shift, row[n][2] + shift]
        case 3:
            row, n = rng.choice(copies)
            del row[n]
        case 4:
            row, n = rng.choice(copies)
            row.insert(n, list(row[n]))
        case 5:
            row, n = rng.choice(copies)
            row[n][2] += rng.choice([-1, 1])
