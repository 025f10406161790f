"""DualPipeV and the best schedule known with pairs, one above the other, on DeepSeek's costs.

python experiments/pairs/6_picture.py [--time-limit S]

Goes on from schedule.json, keeps there what is better, and draws docs/pictures/dualpipev.png.
"""

from __future__ import annotations

from cases import KEPT, PROBLEM, ROOT, dual, options, share

from pipesat.files.problem_file import read_problem
from pipesat.files.schedule_file import read_schedule, write_schedule
from pipesat.picture.figures import file_of
from pipesat.picture.gantt import gantt_figure
from pipesat.workflows.solve import solve

PICTURE = ROOT / "docs" / "pictures" / "dualpipev.png"


def main() -> None:
    given, problem = options(__doc__), read_problem(PROBLEM)
    known = [read_schedule(KEPT, problem)] if KEPT.exists() else []
    theirs = dual(problem, "dualpipev")
    result = solve(problem, time_limit=given.limit, workers=given.workers, schedules=known)
    ours = result.schedule
    if not known or ours.makespan < known[0].makespan:
        write_schedule(KEPT, problem, ours)
    saved = share(1 - ours.makespan / theirs.makespan)
    title = (
        f"DualPipeV {theirs.makespan / 1e6:.3f} s, below it {ours.makespan / 1e6:.3f} s: "
        f"{saved} shorter at the same memory\n"
        "DeepSeek-V3's published costs, 4 devices, 10 microbatches, 4 layers per chunk"
    )
    figure = gantt_figure(problem, {"DualPipeV": theirs, "found": ours}, title=title)
    PICTURE.write_bytes(file_of(figure, "png"))
    print(f"DualPipeV {theirs.makespan:,}, found {ours.makespan:,}, bound {result.lower_bound}")


if __name__ == "__main__":
    main()
