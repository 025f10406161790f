"""``advise --overlap``: rows rebuilt and judged, their pairs, the bound against the split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from campaign.case import Case
from campaign.commands.common import family_of, schedule_in
from campaign.judge import values
from campaign.judge.claims import Judged
from campaign.judge.exact import Truth, exact
from campaign.judge.reading import load, pipe_of
from campaign.problems.layered import layers


def case(case: Case) -> None:
    rng, runtime = case.rng, family_of(case)
    document = layers(rng, rng.randint(2, 4)) | {"time_unit": "ms", "memory_unit": "MiB"}
    case.write("layers.json", document)
    share = rng.choice([(1, 2), (3, 5), (4, 5), (1, 1)])
    words = ["--devices", 2, "--microbatches", rng.randint(1, 4), "--for", runtime]
    words += ["--overlap", f"{share[0]}/{share[1]}", "--link-delay", rng.choice([0, 0, 1])]
    if rng.random() < 0.5:
        words += ["--memory", rng.randint(8, 40), "--memory", "reserve=0"]
    words += ["--workers", 1, "--time-limit", 1 if case.quick else 3, "-o", "out", "--json"]
    ran = case.run("advise", "layers.json", *words, codes=(0, 2, 3))
    if not ran.code:
        case.violations += false_advice(case, share, ran.json())


def false_advice(case: Case, share: tuple[int, int], said: Any) -> Iterator[str]:
    """Yield every false statement of advice.json."""
    out, bound, chosen = case.folder / "out", said["lower_bound"], said["chosen"]
    runs = [row["makespan"] for row in said["rows"] if row["runs"]]
    if (chosen is None) != (not runs) or (chosen and chosen["makespan"] != min(runs)):
        yield f"chosen is {chosen and chosen['makespan']}, of those that run {sorted(runs)}"
    if chosen is not None:
        problem = load(out / "problem.json")
        yield from _false_row(share, chosen, problem, schedule_in(out / "schedule.json"))
        truth = exact(pipe_of(problem), "makespan", 1.0 if case.quick else 4.0)
        if truth.exact:
            case.notes.add("exact")
        if bound is not None and bound > min(truth.upper or bound, chosen["makespan"]):
            yield f"bound {bound} of all splits, though {truth.upper} is possible"
        if (said["status"] == "optimal") != (bound == chosen["makespan"]):
            yield f"status {said['status']} with {chosen['makespan']} and bound {bound}"
    for row in said["rows"]:
        if row["files"] is not None and row["fits"] and row["schedule"] != "offload":
            problem, made = load(out / f"{row['files']}.problem.json"), out / f"{row['files']}.json"
            yield from _false_row(share, row, problem, schedule_in(made))


def _false_row(
    share: tuple[int, int], row: Any, problem: dict[str, Any], schedule: Any
) -> Iterator[str]:
    name = f"{row['schedule']} ({row['split']} split)"
    if problem.get("overlap") != {"FB": [*share]}:
        yield f"{name}: pairs take {problem.get('overlap')}, asked was {share}"
    timed, broken = Judged(problem, "makespan", Truth(0)).judge(schedule)
    if timed is None:
        yield f"{name} breaks rules: {broken[:3]}"
    elif values.makespan(timed) != row["makespan"]:
        yield f"{name}: makespan {row['makespan']}, it is {values.makespan(timed)}"
