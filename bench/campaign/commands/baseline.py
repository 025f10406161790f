"""Every hand-written schedule: valid where it is written, nothing written where it is not."""

from __future__ import annotations

from campaign.case import Case
from campaign.commands.common import a_problem, an_objective, schedule_in, truth_of

NAMES = (
    "zb-h1",
    "zb-h2",
    "zb-auto",
    "zb-auto-span",
    "zb-1p",
    "1f1b-overlapped",
    "eager-1f1b",
    "1f1b",
    "gpipe",
    "interleaved-overlapped",
    "interleaved-zb",
    "interleaved-1f1b",
    "gis",
    "gis-h",
    "looped-bfs",
    "v-auto",
    "zb-v",
    "v-half",
    "v-min",
    "1f1b-v",
    "1f1b-v-auto",
    "dualpipev",
    "dualpipe",
    "chimera",
    "lockstep",
    "greedy-pairs",
    "wait-free-cyclic",
    "list-scheduling",
)


def case(case: Case) -> None:
    judged = truth_of(case, a_problem(case), an_objective(case))
    names = case.rng.sample(NAMES, 4 if case.quick else 8)
    for name in {*names, "list-scheduling"}:
        ran = case.run(
            "export",
            "problem.json",
            name,
            "--to",
            "schedule",
            "-o",
            f"{name}.json",
            codes=(0, 1, 2),
        )
        schedule = schedule_in(case.folder / f"{name}.json")
        case.expect((schedule is not None) == (ran.code == 0), f"{name}: file, code {ran.code}")
        if schedule is None:
            continue
        timed, broken = judged.judge(schedule)
        case.expect(timed is not None, f"{name} breaks rules: {broken[:3]}")
        case.expect(judged.truth.feasible is not False or timed is None, f"{name} fits, oracle: no")
        if timed is not None and judged.best is not None:
            case.expect(judged.best >= judged.truth.lower, f"{name} is below the optimum")
