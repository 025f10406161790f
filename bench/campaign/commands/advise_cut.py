"""``advise`` cut off at random times, held against one build of every family by ``baseline``.

Blocks are alike, and nothing recomputes. Whatever a family makes of the even split that fits is a
row, or one as short is, or the family has a row of the balanced split, which comes first, or the
answer names it as not tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from campaign.case import Case
from campaign.commands.advise import expected_problem
from campaign.commands.common import family_of, schedule_in
from campaign.judge import plans, values
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth

OF_TORCH = {
    "chain": ("1f1b", "zb-h1"),
    "vee": ("zb-v", "dualpipev"),
    "loop of 2": ("interleaved-1f1b", "interleaved-zb"),
    **{f"loop of {chunks}": ("interleaved-1f1b",) for chunks in (3, 4)},
}
OF_MEGATRON = {
    "chain": ("1f1b",),
    **{f"loop of {chunks}": ("interleaved-1f1b",) for chunks in range(2, 9)},
}


def case(case: Case) -> None:
    rng, runtime = case.rng, family_of(case)
    devices = rng.randint(2, 4)
    count = devices * rng.choice([2, 4, 6, 8, 12, 24])
    block = {kind: rng.randint(1, 4) for kind in ("F", "B", "W")} | {"held_after_F": 1}
    document = {"format": "pipesat.layers/1", "time_unit": "ms", "memory_unit": "MiB"}
    case.write("layers.json", document | {"layers": [block] * count})
    memory = rng.choice([None, rng.randint(count // 2, 2 * count)])
    microbatches = devices * rng.randint(1, 6)
    words = ["--devices", devices, "--microbatches", microbatches, "--for", runtime]
    if memory is not None:
        words += ["--memory", memory, "--memory", "reserve=0"]
    limit = round(rng.uniform(0.2, 1 if case.quick else 6), 2)
    words += ["--workers", 1, "--time-limit", limit, "--json"]
    ran = case.run("advise", "layers.json", *words, codes=(0, 3))
    if ran.code == 0:
        question = plans.Question(
            [block] * count, devices, microbatches, [memory] * devices, (), "never"
        )
        case.violations += false_answer(case, question, runtime, ran.json())


def false_answer(case: Case, question: plans.Question, runtime: str, said: Any) -> Iterator[str]:
    """Yield every family whose build is shorter than what is known, and that is not named."""
    named = {one for text in said["not_tried"] for one in families_of(text)}
    case.notes |= {"some not tried"} if named else set()
    for one in said["settings"]:
        left, total = one["total"] - one["tried"], one["total"]
        text = f"{left} of {total} setting{'s' * (total > 1)} of {one['schedule']}"
        if left and text not in said["advice"]["Doubt"]:
            yield f"the lines leave out that {text} were not tried"
    rows = [row for row in said["rows"] if row["fits"]]
    named |= {(row["schedule"], row["placement"]) for row in rows if row["split"] == "balanced"}
    runs = [row["makespan"] for row in rows if row["runs"]]
    chosen = said["chosen"]
    if (chosen and chosen["makespan"]) != min(runs, default=None):
        yield f"chosen is {chosen and chosen['makespan']}, of those that run {sorted(runs)}"
    for placement, names in (OF_MEGATRON if runtime == "megatron" else OF_TORCH).items():
        for name in names:
            least = _built(case, question, runtime, placement, name)
            known = [row["makespan"] for row in rows if row["placement"] == placement]
            if least is None or min(known, default=least + 1) <= least:
                continue
            if (name, placement) not in named:
                yield f"{name} in a {placement} takes {least}, the rows there {sorted(known)}"


def _built(
    case: Case, question: plans.Question, runtime: str, placement: str, name: str
) -> int | None:
    """Build a family's schedule and judge it; ``None`` if there is none, or it breaks a rule."""
    chunks = {"chain": 1, "vee": 2}.get(placement) or int(placement.rsplit(maxsplit=1)[-1])
    stages, count = chunks * question.devices, len(question.layers)
    if count % stages:
        return None
    row = {"layers_per_stage": [count // stages] * stages, "placement": placement}
    row |= {"recompute": [], "recompute_first": None, "why_not": None}
    problem = expected_problem(question, runtime, row)
    file = f"{name}-{placement}".replace(" ", "-")
    path = case.write(f"{file}.json", problem)
    made = case.folder / f"{file}.schedule.json"
    if case.run(
        "export", path.name, name, "--to", "schedule", "-o", made.name, codes=(0, 1, 2)
    ).code:
        return None
    timed, broken = Judged(problem, "makespan", Truth(0)).judge(schedule_in(made))
    case.expect(not broken, f"{name}: called valid, breaks {broken[:3]}")
    return None if timed is None else values.makespan(timed)


def families_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a text such as ``1 of 2 settings of zb-v in a vee`` names, one by one."""
    name, _, where = re.sub("^.* settings? of ", "", text).partition(" in ")
    if "loop" not in where:
        yield name, where.removeprefix("a ")
    for first, last in re.findall(r"(\d+)(?:\D(\d+))?", where):
        for chunks in range(int(first), int(last or first) + 1):
            yield name, f"loop of {chunks}"
