"""Write ten orders for each runtime in Python, read them back, hand them to the real classes.

``python orders.py FOLDER [--d9d FOLDER] [--primus FOLDER]``: FOLDER gets the files. ``--d9d`` has
the package d9d as pip installs it with ``--target``, ``--primus`` a checkout of Primus, whose
scheduling classes are pure Python; what they import besides (a logger) stands in.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipesat.compare.exports import export, import_order
from pipesat.problem.ops import Pair, members
from pipesat.runtimes import RUNTIMES
from pipesat.runtimes.as_run import as_run
from pipesat.runtimes.options import Options
from tests.support.runtime_orders import orders
from tests.support.runtime_stand_ins import loaded


def use_primus(checkout: Path) -> None:
    """Let Primus's scheduling classes be imported, without all that its packages start."""
    for name in ("", ".core", ".core.utils", ".core.pipeline_parallel"):
        package = ModuleType(f"primus{name}")
        package.__path__ = [str(checkout / f"primus{name.replace('.', '/')}")]
        sys.modules[package.__name__] = package
    logger = ModuleType("primus.core.utils.module_utils")
    vars(logger)["log_rank_0"] = print
    sys.modules[logger.__name__] = logger


def in_primus(made: ModuleType, ranks: int, chunks: int, microbatches: int) -> list[list[str]]:
    """Its compute nodes, by its own factory."""
    from primus.core.pipeline_parallel.scheduler.schedule_table_factory import (  # type: ignore[import-not-found]
        _schedule_instance_cache,
        pp_algorithm_map,
        produce_schedule_instance,
    )

    _schedule_instance_cache.clear()  # of the file before, of the same sizes

    (name,) = (key for key, value in pp_algorithm_map.items() if value is made.Pipesat)
    schedule = produce_schedule_instance(name, ranks, chunks, microbatches)
    kinds = {"F", "B", "W", "BW"}
    return [
        [
            f"{made.STAGE[rank, node.chunk]}{node.func_type.name}{node.mini_batch}"
            for node in row
            if node.func_type.name in kinds
        ]
        for rank, row in enumerate(schedule.generate_schedule_table())
    ]


def in_d9d(made: ModuleType, ranks: int, chunks: int, microbatches: int) -> list[list[str]]:
    """Its compute actions, after its own pass that adds communication."""
    program = made.PIPELINE_PROGRAM_REGISTRY.program_for(made.PipesatSchedule())
    assert program.num_stages_per_rank == chunks
    rows = program.compose(microbatches, ranks)
    computed = [[str(a) for a in rows[r] if a.work_type == "compute"] for r in range(ranks)]
    kind = {"I": "B", "B": "BW"}
    return [["".join(kind.get(c, c) for c in text) for text in row] for row in computed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--d9d", type=Path)
    parser.add_argument("--primus", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    real: dict[str, Any] = {}
    if asked.d9d is not None:
        sys.path.insert(0, str(asked.d9d))
        real["d9d"] = in_d9d
    if asked.primus is not None:
        use_primus(asked.primus)
        real["primus"] = in_primus
    warnings.simplefilter("ignore")
    print("| order | ranks, stages, microbatches | for | makespan, as run | equal | real classes |")
    print("|---|---|---|---|---|---|")
    for name, (problem, schedule) in orders().items():
        sizes = len(problem.devices), len(problem.stages), problem.routes[0].microbatches
        for to, runtime in RUNTIMES.items():
            if not runtime.in_python or runtime.why_not(problem, Options()):
                continue
            path = asked.folder / f"{to}-{name.replace(', ', '-')}.py"
            export(problem, schedule, to, path)
            made = as_run(problem, schedule, runtime).schedule
            back = import_order(path, problem).schedule
            same = "yes" if back.order == made.order else "NO"
            told = "-"
            if to in real:
                order = [[str(op) for item in row for op in members(item)] for row in made.order]
                chunks = sizes[1] // sizes[0]
                got = real[to](loaded(path), sizes[0], chunks, sizes[2])
                told = "same ops" if got == order else "OTHER OPS"
            pairs = sum(isinstance(item, Pair) for row in made.order for item in row)
            time = f"{schedule.makespan}, {made.makespan}" + (f" ({pairs} pairs)" if pairs else "")
            print(f"| {name} | {', '.join(map(str, sizes))} | {to} | {time} | {same} | {told} |")


if __name__ == "__main__":
    main()
