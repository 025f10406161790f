"""Write the problems of the goals that the benchmark's files lack, or check the committed ones.

    python -m bench.more.generate [--check]

The same rules as bench/plain/generate.py, whose functions it calls, with other numbers:
Tessel's shapes at p = 8 and 16, a thousand microbatches on uneven stages, and two tiny lines
on which an ILP can be watched. The seed is part of the name (`s3`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.plain import generate as rules

Json = dict[str, Any]


def problems() -> Iterator[Json]:
    """Every problem of this folder."""
    yield from (tessel(shape, p) for shape, p in (("V", 16), ("X", 8), ("X", 16)))
    yield many_microbatches()
    costs = rules.measured("6.2B", 32)
    yield rules.line("tiny-6.2B", 2, 4, 1, costs)
    yield rules.line("tiny-6.2B", 3, 6, 1, costs)


def tessel(shape: str, p: int) -> Json:
    """The smallest file of the shape, with p instead of 4 devices: 2p microbatches, p units."""
    small: Json = next(
        made for made in rules.tessel() if made["name"] == f"tessel-{shape}-p4-m8-cap4"
    )
    placement = list(range(p)) if shape == "V" else rules.vee_placement(p)
    made = {
        **small,
        "name": f"tessel-{shape}-p{p}-m{2 * p}-cap{p}",
        "devices": [{"memory": p}] * p,
        "stages": [{**small["stages"][0], "device": d} for d in placement],
    }
    if shape == "V":
        return {**made, "microbatches": 2 * p}
    return {**made, "routes": rules.two_routes(p, 2 * p)}


def many_microbatches() -> Json:
    """1024 microbatches on 8 stages that differ by up to 20 % (seed 3), 3/4 of 1F1B's memory."""
    base = rules.measured("6.2B", 32)
    stages = [rules.stage(d, costs) for d, costs in enumerate(rules.skewed(base, 3, 8))]
    memory = rules.capacity(8, 0.75)
    made: Json = rules.problem("uneven-6.2B-s3-p8-m1024-cap0.75", 1024, memory, stages, base.comm)
    return made


if __name__ == "__main__":
    sys.exit(rules.main(groups=(problems,), folder=Path(__file__).parent / "problems"))
