"""Is what torch 2.13 makes of an exported order safe? Every schedule that torch runs, every rule.

    python experiments/hangs/lowered.py

torch's own `_add_send_recv` adds the sends and receives, as its runtime does with a CSV. The table
goes into README.md.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from pathlib import Path

from schedules import problems
from tables import put
from torch.distributed.pipelining.schedules import _Action, _add_send_recv

import pipesat
from pipesat.export.torch.adapt import adapt
from pipesat.hangs.step_lists import RULES
from pipesat.hangs.verdict import posted_in, verdict

HERE = Path(__file__).resolve().parent


def lowered(text: str) -> str:
    """A compute-only CSV with torch's sends and receives."""
    rows = [[_Action.from_str(cell) for cell in line.split(",")] for line in text.splitlines()]
    home = {
        one.stage_index: rank
        for rank, row in enumerate(rows)
        for cell in row
        if cell is not None
        for one in cell.sub_actions or (cell,)
    }
    made = _add_send_recv(dict(enumerate(map(list, rows))), home.__getitem__, len(home))
    return "".join(",".join(map(str, made[rank])) + "\n" for rank in sorted(made))


def main() -> None:
    warnings.simplefilter("ignore")
    found: Counter[tuple[str, bool]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lowered.csv"
        for problem in problems():
            for name in pipesat.baselines():
                try:
                    schedule = problem.schedule(name)
                    if pipesat.check(problem, schedule):
                        continue
                    text = pipesat.export(problem, schedule, to="torch-csv").data.decode()
                    adapted = adapt(problem, schedule)
                except pipesat.NotApplicable:
                    continue
                path.write_text(lowered(text))
                order = adapted.schedule.order
                posted = posted_in(path, adapted.problem, order)
                assert posted is not None
                for rule in RULES:
                    said = verdict(adapted.problem, adapted.schedule, rule, posted)
                    found[rule, said.safe] += 1
            print(problem.name, flush=True)
    lines = [["rule", "orders", "safe"], ["---"] * 3]
    lines += [[r, str(found[r, True] + found[r, False]), str(found[r, True])] for r in RULES]
    put(HERE / "README.md", "lowered", lines, "Exported orders as torch 2.13 lowers them.")


if __name__ == "__main__":
    main()
