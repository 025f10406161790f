"""Is our 1F1B-V that of OLMo-core 3.0.0, op for op? Downloads its wheel into a temporary folder.

    python bench/peers/olmo_orders.py

The class that makes the order imports torch and more. Its methods that make the table of slots need
nothing, so they alone are taken out of the file and run.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pipesat
from pipesat.heuristics.one_f_one_b_v import pulled_ahead

PACKAGE = "ai2-olmo-core==3.0.0"
MODULE = "olmo_core/train/train_module/transformer/pipeline/pipeline_schedule.py"
CLASS, TABLE, EXTRA = "CustomSchedule1F1BV", "1f1bv", "_normalize_forward_pull_ahead"


@cache
def generator() -> Any:
    """The published class, without what needs torch."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder]
        subprocess.run([*pip, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        source = zipfile.ZipFile(wheel).read(MODULE).decode()
    found = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == CLASS
    )
    found.bases = []
    found.body = [
        node
        for node in found.body
        if (
            isinstance(node, ast.FunctionDef)
            and (TABLE in node.name or node.name.startswith(EXTRA))
        )
        or (isinstance(node, ast.Assign) and "size" in ast.unparse(node.targets[0]))
    ]
    names: dict[str, Any] = {}
    head = "from __future__ import annotations\nfrom collections.abc import Mapping, Sequence\n"
    exec(head + ast.unparse(found).replace("PipelineAction", "object"), names)
    return names[CLASS]


def rows(table: list[list[str]]) -> list[list[str]]:
    """Their slots as our ops: F and b of the first chunk, f and B of the second."""
    found = []
    for rank, slots in enumerate(table):
        taken: Counter[str] = Counter()
        ops = []
        for symbol in slots:
            if symbol in "FfBb":
                stage = rank if symbol in "Fb" else 2 * len(table) - 1 - rank
                ops.append(f"{stage}{'F' if symbol in 'Ff' else 'BW'}{taken[symbol]}")
                taken[symbol] += 1
        found.append(ops)
    return found


def main() -> None:
    theirs = generator()
    compared = different = 0
    for p in range(2, 13):
        for m in (1, 2, 3, 5, 8, 12, 16, 24, 31):
            problem = pipesat.Problem.vee(
                devices=p, microbatches=m, F=1, B=1, W=1, BW=2, backward="fused"
            )
            by_rank = [(3 * rank + m) % (p + 1) for rank in range(p)]
            for more in (0, 1, 2, 3, 4, 8, by_rank):
                table = theirs._generate_1f1bv_symbol_table(
                    p, m, forward_pull_ahead_extra_activations=more
                )
                ours = [[str(op) for op in row] for row in pulled_ahead(problem, more).order]
                compared += 1
                if ours != rows(table):
                    different += 1
                    print(f"p {p}, m {m}, {more} more: differs")
    print(f"{compared} shapes compared, {different} differ")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
