"""The public tools' answers: made by their own programs, read back and passed by our checker.

    python bench/peers/answers.py [--check]

Writes others/, more problems of the two families, and the reference.json of both folders. With
--check it writes nothing and compares. It downloads OLMo-core, ELF and PuLP into a temporary
folder; ELF wants torch in the environment. Takes about four minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from olmo_orders import generator, rows

from pipesat.check.checker import check
from pipesat.problem.ops import Item, Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent
ELF = ("elf-pipeline==0.1.0", "pulp==3.3.2")
ELF_ORDERS = ("1f1b", "zbh1", "zbh2", "afab")
ELF_SECONDS = 60  # of its ILP, per order
ONE_F_ONE_B_V, WITH_ILP = "OLMo-core 3.0.0 1F1B-V", "ELF 0.1.0, best of its orders with its ILP"
KNOWN_FUSED = ((4, 8, (6, 7, 8, 10)), (8, 16, (12, 13, 14, 16, 20)))
KNOWN_RECOMPUTE = ((4, 8, (200, 300)), (6, 12, (300, 400)))
MORE_FUSED = (
    *((2, 4, (4,)), (3, 6, (7, 8)), (4, 16, (6, 9)), (5, 10, (9, 11)), (6, 12, (10, 12))),
    *((7, 21, (10, 13)), (8, 16, (15, 18)), (8, 32, (12, 15)), (12, 24, (18, 21)), (16, 32, (24,))),
)
MORE_RECOMPUTE = (
    *((4, 12, (200, 400)), (5, 10, (200, 300)), (6, 18, (200, 300, 400)), (8, 16, (200, 300, 500))),
    *((8, 24, (300, 600)), (10, 20, (400,))),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; compare")
    compare = parser.parse_args().check
    made: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, *ELF], check=True)
        sys.path.insert(0, folder)
        for into, reference, fused, recompute in (
            (HERE / "problems", HERE, KNOWN_FUSED, KNOWN_RECOMPUTE),
            (HERE / "others", HERE / "others", MORE_FUSED, MORE_RECOMPUTE),
        ):
            answers = {}
            for name, document in documents(fused, recompute):
                made[into / f"{name}.json"] = json.dumps(document)
                answers[name] = {"peers": answered(document)}
                print(name, answers[name]["peers"], flush=True)
            made[reference / "reference.json"] = json.dumps(answers, indent=1)
    wrong = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in wrong:
        print(f"{path.relative_to(HERE)} {'differs' if compare else 'written'}")
        if not compare:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path])
    return int(compare and bool(wrong))


def documents(fused: Any, recompute: Any) -> Iterator[tuple[str, Json]]:
    """Problem files by name: Vs with full backwards, and chains that may recompute."""
    amounts: Json = {"F": 100, "B": 100, "W": 100, "BW": 200}
    chunk = amounts | {"held_after_F": 1, "backward": "fused"}
    mode = {"name": "recompute", "B": 200, "W": 100, "BW": 300}
    mode |= {"held_after_F": 10, "held_after_B": 0, "held_in_backward": 110}
    stage = amounts | {"held_after_F": 100, "held_after_B": 0, "modes": [mode]}
    for p, m, caps in fused:
        for cap in caps:
            name = f"fused V, {p} devices, {m} microbatches, {cap} chunks"
            places = [*range(p), *reversed(range(p))]
            yield f"peer-fused-vee-p{p}-m{m}-c{cap}", document(name, p, m, cap, places, chunk)
    for p, m, caps in recompute:
        for cap in caps:
            name = f"recompute by ILP, {p} devices, {m} microbatches, capacity {cap}"
            made = document(name, p, m, cap, range(p), stage)
            yield f"peer-recompute-chain-p{p}-m{m}-cap{cap}", made


def document(name: str, p: int, m: int, cap: int, places: Any, stage: Json) -> Json:
    """A problem file whose stages are alike."""
    return {
        "format": "pipesat.problem/1",
        "name": name,
        "time_unit": "us",
        "memory_unit": "MiB",
        "microbatches": m,
        "devices": [{"memory": cap}] * p,
        "stages": [{"device": device} | stage for device in places],
    }


def answered(document: Json) -> Json:
    """The better tool's answer, as reference.json has it."""
    problem = parse_problem(document)
    chain = problem.has_modes
    found = [*(elf(problem) if chain else olmo(problem))]
    said, read_back = map(min, zip(*found, strict=True))
    assert said <= read_back
    answer: Json = {"makespan": said, "within_cap": True}
    if chain:  # its ILP minimises a span, which a makespan is never shorter than
        answer |= {"span objective": True, "makespan read back": read_back}
    return {WITH_ILP if chain else ONE_F_ONE_B_V: answer}


def olmo(problem: Problem) -> Iterator[tuple[int, int]]:
    """Makespans of 1F1B-V with up to 2p more activations per rank, of those that fit."""
    p, m = len(problem.devices), problem.routes[0].microbatches
    for more in range(2 * p + 1):
        table = generator()._generate_1f1bv_symbol_table(
            p, m, forward_pull_ahead_extra_activations=more
        )
        order = tuple(tuple(map(parse_item, row)) for row in rows(table))
        schedule = time_order(problem, order)
        rules = {violation.rule for violation in check(problem, schedule)}
        assert rules <= {"memory"}, rules
        if not rules:
            yield schedule.makespan, schedule.makespan


def elf(problem: Problem) -> Iterator[tuple[int, int]]:
    """What its ILP says of every order that fits, and the makespan of the answer."""
    from elf.registry import SCHEDULERS, resolve
    from elf.scheduling.ilp import solve_remat

    p, m = len(problem.devices), problem.routes[0].microbatches
    stage, mode = problem.stages[0], problem.stages[0].modes[0]
    kept, left = stage.held_after_F, dict(mode.stated)["held_after_F"]
    statistics = {
        "T": {"f": stage.F, "b": stage.B, "w": stage.W},
        "M": {"f": kept, "b": 0, "w": 0},
        "Mpeak": {"f": kept, "b": 0, "w": 0},
        "Mpeak_ckpt": left,
        "Minput": left,
        "Moutput": 0,
        **dict.fromkeys(("Mba", "Mparams", "Tcomm"), 0),
    }
    for name in ELF_ORDERS:
        try:
            found = solve_remat(
                *([statistics] * p, list(range(p)), resolve(name, SCHEDULERS), m),
                *(problem.devices[0].memory, ELF_SECONDS, 0),
            )
        except RuntimeError:  # no recomputation makes this order fit
            continue
        assert not any(map(any, found["full_bwd"] + found["activations_bwd"]))
        order: list[list[Item]] = [[] for _ in range(p)]
        for kind, block, microbatch in found["order"]:
            chosen = round(found["full_fwd"][block][microbatch])
            order[block].append(Op(block, kind.upper(), microbatch, chosen))
        schedule = time_order(problem, tuple(map(tuple, order)))
        assert not check(problem, schedule)
        yield round(found["objective"]), schedule.makespan


if __name__ == "__main__":
    sys.exit(main())
