"""Random problems with pairs of every kind against an exact oracle; the tables go into README.md.

    python experiments/2026-11-22-pairs-oracle/01_small_problems.py WHAT [PROBLEMS] [FIRST]

``bounds`` judges the closed forms alone, ``tight`` the same where memory is tight, ``waiting`` and
``whole`` those that rows about waiting, or whole microbatches, raise, ``ranks`` those that ranks
raise (against what the search finds without them), ``solve`` all that an answer claims, for both
objectives.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.bounds.closed_form import closed_form_bound  # noqa: E402
from pipesat.bounds.feasibility import preflight  # noqa: E402
from pipesat.core.errors import Infeasible  # noqa: E402
from pipesat.core.problem import Problem  # noqa: E402
from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from pipesat.workflows.solve import solve  # noqa: E402
from tests.support.against_oracle import Verdict, judged, least_value  # noqa: E402
from tests.support.paired import (  # noqa: E402
    random_paired_document,
    random_rank_document,
    random_tight_document,
    random_waiting_document,
)
from tests.support.without_rows import (  # noqa: E402
    without_ranks,
    without_waiting,
    without_whole_microbatches,
)

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")
SECONDS = 10.0
EFFORT = 3.0


def closed_form(problem: Problem, objective: Objective) -> int | None:
    """Return the closed form; ``None`` where arithmetic says that nothing fits."""
    try:
        preflight(problem)
    except Infeasible:
        return None
    return closed_form_bound(problem, objective).value


def bounded(document: dict[str, Any], objective: Objective) -> Verdict:
    """Judge the closed form; its status is whether it is met."""
    problem = parse_problem(document)
    if (bound := closed_form(problem, objective)) is None:
        return Verdict("infeasible", [])
    least, decided = least_value(document, objective, bound, EFFORT / 3)
    wrong = (
        [f"bound {bound} above {least}, which is possible"]
        if least is not None and least < bound
        else []
    )
    status = "met" if least is not None else "below" if decided else "unknown"
    return Verdict(status, wrong, decided)


def raised(document: dict[str, Any], objective: Objective, what: str) -> Verdict:
    """Ask for a schedule below the closed form, if it is higher for what is judged."""
    problem = parse_problem(document)
    if (bound := closed_form(problem, objective)) is None:
        return Verdict("infeasible", [])
    with without_waiting() if what == "waiting" else without_whole_microbatches():
        if closed_form_bound(problem, objective).value == bound:
            return Verdict("as without", [])
    least, decided = least_value(document, objective, bound - 1, EFFORT / 2)
    wrong = [] if least is None else [f"bound {bound} above {least}, which is possible"]
    return Verdict("raised", wrong, decided)


def raised_by_ranks(document: dict[str, Any], objective: Objective) -> Verdict:
    """Hold the bound by ranks, if it is the highest, against what is found without it."""
    problem = parse_problem(document)
    if (bound := closed_form(problem, objective)) is None:
        return Verdict("infeasible", [])
    with without_ranks():
        if closed_form_bound(problem, objective).value == bound:
            return Verdict("as without", [])
        result = solve(problem, objective=objective, time_limit=EFFORT / 3, workers=1)
    value = result.value
    wrong = [] if value is None or value >= bound else [f"bound {bound}, a schedule has {value}"]
    return Verdict("raised", wrong, result.status == "optimal" or value == bound)


def main() -> None:
    what = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    found: Counter[tuple[str, str, str]] = Counter()
    for seed in range(first, first + count):
        zeros = seed % 2 == 0
        kind = "with ops of length zero" if zeros else "without"
        document = random_paired_document(Random(seed), zeros=zeros)
        if what == "tight":
            kind, document = "memory for less than all", random_tight_document(Random(seed))
        if what == "waiting" or (what == "whole" and zeros):
            kind, document = "one F in each pair", random_waiting_document(Random(seed))
        elif what == "whole":
            kind, document = "pairs of any kind", random_tight_document(Random(seed))
        elif what == "ranks":
            kind, document = "every F with every backward", random_rank_document(Random(seed))
        for objective in OBJECTIVES:
            if what in ("waiting", "whole"):
                verdict = raised(document, objective, what)
            elif what == "ranks":
                verdict = raised_by_ranks(document, objective)
            elif what != "solve":
                verdict = bounded(document, objective)
            else:
                verdict = judged(document, objective, SECONDS, EFFORT)
            for complaint in verdict.wrong:
                print(f"seed {seed}, {objective}: {complaint}", flush=True)
            found[kind, objective, verdict.status] += 1
            found[kind, objective, "undecided by the oracle"] += not verdict.decided
            found[kind, objective, "violations"] += len(verdict.wrong)
        if seed % 20 == 19:
            _write(what, found, f"Seeds {first} to {seed}.")
    _write(what, found, f"Seeds {first} to {first + count - 1}.")
    sys.exit(any(found[key] for key in found if key[2] == "violations"))


def _write(what: str, found: Counter[tuple[str, str, str]], seeds: str) -> None:
    answers = {
        "bounds": ("met", "below", "infeasible"),
        "tight": ("met", "below", "infeasible"),
        "waiting": ("raised", "as without", "infeasible"),
        "whole": ("raised", "as without", "infeasible"),
        "ranks": ("raised", "as without", "infeasible"),
        "solve": ("optimal", "feasible", "infeasible", "unknown", "error"),
    }[what]
    columns = (*answers, "undecided by the oracle", "violations")
    lines = [["problems", "objective", *columns], ["---"] * (2 + len(columns))]
    for kind, objective in sorted({key[:2] for key in found}):
        lines.append([kind, objective, *(str(found[kind, objective, c]) for c in columns)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(table)
    readme = HERE / "README.md"
    text, begin, end = readme.read_text(), f"<!-- begin {what} -->\n", f"<!-- end {what} -->"
    head, tail = text.split(begin)[0], text.split(end)[1]
    readme.write_text(f"{head}{begin}{seeds}\n\n{table}\n{end}{tail}")


if __name__ == "__main__":
    main()
