"""Hold the CP-SAT model of one device alone, with modes, against the oracle."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pipesat.core.schedule import Objective  # noqa: E402
from pipesat.files.problem_file import parse_problem  # noqa: E402
from tests.support.optimum import least_end  # noqa: E402
from tests.support.oracle_by_instants import optimum  # noqa: E402
from tests.support.tiny_modes import tiny_chain  # noqa: E402

FAR = 60  # no optimum of these problems is longer


def main(first: int, last: int) -> None:
    """Print and write what the seeds from ``first`` to before ``last`` come to."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        name = compare(seed)
        counts[name] += 1
        if name.endswith("!"):
            print(seed, name, flush=True)
    text = json.dumps({"seeds": [first, last]} | dict(sorted(counts.items())), indent=1) + "\n"
    print(text, end="")
    (Path(__file__).parent / "alone.json").write_text(text)
    if any(name.endswith("!") for name in counts):
        raise SystemExit(1)


def compare(seed: int) -> str:
    """Say what holds of one problem; what must never hold ends in ``!``."""
    document = tiny_chain(Random(seed))
    problem = parse_problem(document)
    objective: Objective = "span" if seed % 3 == 0 else "makespan"
    best = optimum(document, objective)
    ends = [
        least_end(problem, device, FAR, absolute=objective == "makespan")
        for device in range(len(problem.devices))
    ]
    if best is None:
        return "infeasible"
    if None in ends or any(end is not None and end > best for end in ends):
        return "false bound!"
    if len(ends) == 1:
        return "one device, exact" if ends == [best] else "one device, too short!"
    return "two devices, a bound"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
