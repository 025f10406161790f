"""Spoiled files through every reader: one clear line and exit code 2, unless still good."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from campaign.case import Case
from campaign.commands.common import schedule_in
from campaign.problems import PROBLEMS, TINY
from campaign.problems.layered import layers

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1.5, 10**13, 10**400, "", "x", "\u0000", "NaN", [], [1], {}, {"a": 1},
    [[]], "0F0", 1e308,
)  # fmt: skip


def spoiled(rng: Random, document: Any) -> Any:
    """Return a copy with one value replaced, one key lost or one key too many."""
    copy = json.loads(json.dumps(document))
    places: list[tuple[Any, Any]] = []
    _places(copy, places)
    home, key = rng.choice(places)
    match rng.randrange(4):
        case 0 if isinstance(home, dict):
            del home[key]
        case 1 if isinstance(home, dict):
            home[rng.choice(["Name", "microbatch", "F ", "", "ü"])] = rng.choice(VALUES)
        case _:
            home[key] = rng.choice(VALUES)
    return copy


def _places(value: Any, found: list[tuple[Any, Any]]) -> None:
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _places(value[key], found)


def text_of(rng: Random, document: Any) -> str:
    """Return JSON, at times cut short or with a byte changed."""
    text = json.dumps(document)
    place = rng.randrange(len(text))
    match rng.randrange(12):
        case 0:
            return text[:place]
        case 1:
            return text[:place] + rng.choice(["\u0000", '"', "{", "NaN", "\r"]) + text[place + 1 :]
    return text


def case(case: Case) -> None:
    rng = case.rng
    problem = PROBLEMS[rng.choice(TINY)](rng)
    case.write("problem.json", problem)
    case.run("baseline", "list-scheduling", "problem.json", "-o", "good.json", codes=(0, 1, 2))
    valid = schedule_in(case.folder / "good.json")
    for number in range(6):
        reader = rng.choice(["problem", "schedule", "layers"])
        name = f"bad{number}.json"
        if reader == "problem":
            case.write(name, text_of(rng, spoiled(rng, problem)))
            quick = ["--time-limit", 0.05, "--workers", 1]
            words = rng.choice([["solve", name, *quick], ["check", name, "good.json"]])
        elif reader == "schedule" and valid is not None:
            case.write(name, text_of(rng, spoiled(rng, valid)))
            out = ["--to", rng.choice(["torch-csv", "trace"]), "-o", "x"]
            words = rng.choice(
                [["check", "problem.json", name], ["export", "problem.json", name, *out]]
            )
        else:
            case.write(name, text_of(rng, spoiled(rng, layers(rng, 4))))
            words = ["plan", name, "--devices", 2, "--microbatches", 2, "--time-limit", 0.3]
        ran = case.run(*words, codes=(0, 1, 2, 3))
        if ran.code == 2 and name in words:
            last = ran.err.strip().splitlines()
            case.expect(bool(last) and last[-1].startswith("pipesat"), f"{words}: says {last[-1:]}")
