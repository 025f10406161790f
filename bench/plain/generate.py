"""Write the benchmark problems, or check that the committed ones are what this script writes.

    python bench/plain/generate.py [--out DIR] [--check]

One function per group, one JSON file per problem; README.md says what each group asks.
Needs the standard library only. Times are in microseconds, memory in 1/10,000 of the
activation that one stage holds for one microbatch, unless a group says otherwise.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent
ACTIVATION = 10_000

# Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, Table 9: measured T_F, T_B, T_W and
# T_comm of one stage, here in microseconds, per (model, microbatches of the run).
TABLE_9 = {
    ("1.5B", 24): (18522, 18086, 9337, 601),
    ("1.5B", 32): (18513, 18086, 9331, 626),
    ("1.5B", 64): (18546, 18097, 9321, 762),
    ("6.2B", 24): (29718, 29444, 19927, 527),
    ("6.2B", 32): (29802, 29428, 19530, 577),
    ("6.2B", 64): (29935, 29621, 19388, 535),
    ("14.6B", 48): (11347, 11248, 8132, 377),
    ("14.6B", 64): (11307, 11254, 8101, 379),
    ("14.6B", 128): (11325, 11308, 8109, 378),
    ("28.3B", 96): (10419, 10207, 7715, 408),
    ("28.3B", 128): (10408, 10204, 7703, 408),
    ("28.3B", 256): (10402, 10248, 7698, 460),
}

# The same paper's models: devices, attention heads, hidden size. All use sequences of 1024.
MODELS = {
    "1.5B": (8, 24, 2304),
    "6.2B": (8, 32, 4096),
    "14.6B": (16, 40, 5120),
    "28.3B": (32, 48, 6144),
}
SEQUENCE = 1024


# ---- costs and the parts of a problem file ----


@dataclass(frozen=True)
class Costs:
    """What one stage costs per microbatch: times, link delay, memory after F and after B."""

    f: int
    b: int
    w: int
    comm: int
    held_after_f: int = ACTIVATION
    held_after_b: int = ACTIVATION // 2

    def times(self, f: float, b: float, w: float) -> Costs:
        """The same stage with F, B and W times their factors."""
        return Costs(
            round(f * self.f),
            round(b * self.b),
            round(w * self.w),
            self.comm,
            self.held_after_f,
            self.held_after_b,
        )

    def chunk(self, chunks: int) -> Costs:
        """One of `chunks` equal parts of the stage; the link carries the same tensor."""
        return Costs(
            round(self.f / chunks),
            round(self.b / chunks),
            round(self.w / chunks),
            self.comm,
            self.held_after_f // chunks,
            round(self.held_after_b / chunks),
        )


def measured(model: str, microbatches: int) -> Costs:
    """A row of Table 9, with memory after B by the paper's formula.

    Per layer, F leaves sbh (34 + 5as/h) for the backward, and B leaves 32sbh of it for W
    (s sequence, b microbatch size, h hidden size, a heads), so their ratio is free of s, b, h
    outside the bracket.
    """
    _, heads, hidden = MODELS[model]
    held_after_b = round(ACTIVATION * 32 / (34 + 5 * heads * SEQUENCE / hidden))
    return Costs(*TABLE_9[model, microbatches], held_after_b=held_after_b)


# F = B = W = 1, free links, B releases half: small numbers, for hand-made comparisons.
UNIT = Costs(1, 1, 1, 0)
UNIT_CHUNK = Costs(1, 1, 1, 0, ACTIVATION // 2, ACTIVATION // 4)


def stage(device: int, costs: Costs, **extra: int | str) -> Json:
    """One stage of a problem file."""
    return {
        "device": device,
        "F": costs.f,
        "B": costs.b,
        "W": costs.w,
        "held_after_F": costs.held_after_f,
        "held_after_B": costs.held_after_b,
        **extra,
    }


def problem(
    name: str,
    microbatches: int | None,
    memory: Sequence[int | None],
    stages: list[Json],
    comm: int,
    **extra: Any,
) -> Json:
    """A problem file; `microbatches` is None where `extra` brings routes."""
    count = {} if microbatches is None else {"microbatches": microbatches}
    return {
        "format": "pipesat.problem/1",
        "name": name,
        "time_unit": "us",
        "memory_unit": "1e-4 stage activation",
        **count,
        "devices": [{"memory": limit} for limit in memory],
        "stages": stages,
        "comm": {"default": comm},
        **extra,
    }


def capacity(p: int, cap: float) -> list[int]:
    """`cap` times the peak of 1F1B, which is p activations on the first device, everywhere."""
    return [round(cap * p * ACTIVATION)] * p


def line(name: str, p: int, m: int, cap: float, costs: Costs) -> Json:
    """p equal stages on p devices."""
    stages = [stage(d, costs) for d in range(p)]
    return problem(f"{name}-p{p}-m{m}-cap{cap:g}", m, capacity(p, cap), stages, costs.comm)


def vee_placement(p: int) -> list[int]:
    """Devices of the 2p chunks: down the ranks and back up, so rank 0 has the first and last."""
    return [*range(p), *reversed(range(p))]


def v_shape(name: str, p: int, m: int, cap: float, chunk: Costs) -> Json:
    """Two chunks per device in a V."""
    stages = [stage(d, chunk) for d in vee_placement(p)]
    return problem(f"{name}-p{p}-m{m}-cap{cap:g}", m, capacity(p, cap), stages, chunk.comm)


def skewed(base: Costs, seed: int, p: int) -> list[Costs]:
    """p stages whose F, B and W differ from `base` by up to 20 %, drawn in that order.

    Only Random.random() is used: Python promises its sequence for a seed across versions.
    """
    rng = random.Random(seed)
    return [base.times(*(0.8 + 0.4 * rng.random() for _ in range(3))) for _ in range(p)]


# ---- the groups ----


def table5() -> Iterator[Json]:
    """The 12 configurations of the Zero Bubble paper's Table 5, at ZB-1p's and ZB-2p's memory."""
    for model, m in TABLE_9:
        for cap in (1, 2):
            yield line(f"table5-{model}", MODELS[model][0], m, cap, measured(model, m))


def lowcap() -> Iterator[Json]:
    """A uniform line with less memory than 1F1B."""
    for label, costs in (("unit", UNIT), ("6.2B", measured("6.2B", 32))):
        for p, m in ((4, 8), (8, 16), (8, 32), (16, 32)):
            for cap in (0.5, 0.75):
                yield line(f"lowcap-{label}", p, m, cap, costs)


def midcap() -> Iterator[Json]:
    """A uniform line between 1F1B's memory and twice that, four microbatches per device."""
    for p in (4, 8, 16):
        yield line("midcap-1.5B", p, 4 * p, 1.5, measured("1.5B", 32))


def vee() -> Iterator[Json]:
    """Two chunks per device in a V, from V-ZB's memory down to V-Min's."""
    caps = {
        (4, 8): (1, 0.75, 0.5),
        (8, 16): (1, 0.75, 0.625, 0.5),
        (8, 32): (1, 0.625),
        (16, 32): (1, 0.5625, 0.375),
    }
    for (p, m), fractions in caps.items():
        for cap in fractions:
            yield v_shape("vee-6.2B", p, m, cap, measured("6.2B", 32).chunk(2))
    yield v_shape("vee-unit", 4, 4, 0.75, UNIT_CHUNK)


def uneven() -> Iterator[Json]:
    """Stages that differ at random; `s1` and `s2` name the seed."""
    base = measured("6.2B", 32)
    for seed in (1, 2):
        stages = [stage(d, costs) for d, costs in enumerate(skewed(base, seed, 8))]
        for m in (16, 32):
            for cap in (1, 1.5):
                yield problem(
                    f"uneven-6.2B-s{seed}-p8-m{m}-cap{cap:g}",
                    m,
                    capacity(8, cap),
                    stages,
                    base.comm,
                )


def head() -> Iterator[Json]:
    """A last stage half as expensive again, as a vocabulary head makes it."""
    base = measured("6.2B", 32)
    stages = [stage(d, base) for d in range(7)] + [stage(7, base.times(1.5, 1.5, 1.5))]
    for m in (16, 32):
        yield problem(f"head-6.2B-p8-m{m}-cap1", m, capacity(8, 1), stages, base.comm)


def adaptis() -> Iterator[Json]:
    """Four stages with the last one slowest, and no memory limit."""
    times = ((25, 40, 16), (24, 40, 16), (24, 40, 16), (33, 55, 19))
    stages = [stage(d, Costs(*fbw, comm=0)) for d, fbw in enumerate(times)]
    yield problem("adaptis-p4-m8", 8, [None] * 4, stages, 0)


def loop() -> Iterator[Json]:
    """v chunks per device, round the ranks (interleaved), with p (2v - 1) chunk activations."""
    for v, p, m in ((2, 4, 8), (2, 8, 16), (4, 4, 16)):
        chunk = measured("6.2B", 32).chunk(v)
        stages = [stage(s % p, chunk) for s in range(v * p)]
        memory = [p * (2 * v - 1) * chunk.held_after_f] * p
        yield problem(f"loop{v}-6.2B-p{p}-m{m}-cap1", m, memory, stages, chunk.comm)


def bidir() -> Iterator[Json]:
    """Two replicas in opposite directions, half of m each, with DualPipe's p + 1 activations."""
    costs = measured("6.2B", 32)
    for p, m in ((4, 8), (8, 20)):
        yield problem(
            f"bidir-6.2B-p{p}-m{m}",
            None,
            [(p + 1) * ACTIVATION] * p,
            [stage(d, costs) for d in vee_placement(p)],
            costs.comm,
            routes=two_routes(p, m // 2),
        )


def two_routes(p: int, microbatches: int) -> list[Json]:
    """Stages 0..p-1 are one replica, p..2p-1 the other, each in its own forward direction."""
    return [
        {"stages": list(range(first, first + p)), "microbatches": microbatches} for first in (0, p)
    ]


def torch() -> Iterator[Json]:
    """What eager PyTorch gives: see `torch_stages`; devices and links differ too.

    Capacities are a short pattern repeated over the ranks; the name gives the first of it.
    """
    patterns = ((4, 8, (8, 7.5)), (4, 8, (20, 18)), (8, 16, (12, 11.5, 13)), (8, 32, (24, 20)))
    base = measured("6.2B", 32)
    for p, m, caps in patterns:
        memory = [round(caps[d % len(caps)] * ACTIVATION) for d in range(p)]
        made = problem(
            f"torch-6.2B-p{p}-m{m}-cap{caps[0]:g}", m, memory, torch_stages(base, p), base.comm
        )
        for d, device in enumerate(made["devices"]):
            device["static"] = 3 * ACTIVATION + d * ACTIVATION // 4
        made["comm"]["edges"] = [
            {"src": d, "dst": d + 1, "F": base.comm * (1 + d % 3), "B": base.comm * (2 + d % 2)}
            for d in range(p - 1)
        ]
        yield made


def torch_stages(base: Costs, p: int) -> list[Json]:
    """Uneven stages (seed 5) with the memory and the backward of eager PyTorch.

    B keeps what F holds and adds three quarters of it until W has run, B and W together take
    16 % longer than the fused backward, and the first stage, whose input needs no gradient,
    cannot split.
    """
    kept = Costs(base.f, base.b, base.w, base.comm, ACTIVATION, 7 * ACTIVATION // 4)
    stages = [
        stage(d, costs, BW=round((costs.b + costs.w) / 1.16))
        for d, costs in enumerate(skewed(kept, 5, p))
    ]
    stages[0]["backward"] = "fused"
    return stages


def tessel() -> Iterator[Json]:
    """Tessel's V and X shapes: F = 1, a fused backward of 3, one unit of memory per microbatch."""
    unit = {"F": 1, "B": 1, "W": 2, "BW": 3, "held_after_F": 1, "backward": "fused"}
    for shape, p, m in (("V", 4, 8), ("V", 8, 16), ("X", 4, 8)):
        placement = list(range(p)) if shape == "V" else vee_placement(p)
        yield {
            "format": "pipesat.problem/1",
            "name": f"tessel-{shape}-p{p}-m{m}-cap{p}",
            "devices": [{"memory": p}] * p,
            "stages": [{"device": d, **unit} for d in placement],
            **({"microbatches": m} if shape == "V" else {"routes": two_routes(p, m)}),
        }


def large() -> Iterator[Json]:
    """As many ops as a big job has: 98,304 in the line, 49,152 in the V."""
    costs = measured("28.3B", 128)
    yield line("large-28.3B", 64, 512, 1, costs)
    yield v_shape("large-vee-28.3B", 32, 256, 1, costs.chunk(2))


Group = Callable[[], Iterable[Json]]
GROUPS: tuple[Group, ...] = (
    table5,
    lowcap,
    midcap,
    vee,
    uneven,
    head,
    adaptis,
    loop,
    bidir,
    torch,
    tessel,
    large,
)


# ---- files ----


def files(groups: Iterable[Group] = GROUPS) -> dict[str, bytes]:
    """Every problem file by name, sorted: one line of JSON and a newline."""
    made = chain.from_iterable(group() for group in groups)
    return dict(sorted((f"{p['name']}.json", f"{json.dumps(p)}\n".encode()) for p in made))


def differences(expected: dict[str, bytes], folder: Path) -> list[str]:
    """One line per file of `folder` that is missing, is not ours, or has other bytes."""
    found = {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}
    lines = [f"missing: {name}" for name in expected if name not in found]
    lines += [f"not generated: {name}" for name in found if name not in expected]
    lines += [
        f"differs: {name}" for name in expected if name in found and found[name] != expected[name]
    ]
    return lines


def main(
    argv: Sequence[str] | None = None,
    groups: Iterable[Group] = GROUPS,
    folder: Path = HERE / "problems",
) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Write or check the benchmark problems.")
    parser.add_argument(
        "--out",
        type=Path,
        default=folder,
        metavar="DIR",
        help="folder of the problem files (default: problems/ beside the script)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; compare the folder with what would be written",
    )
    args = parser.parse_args(argv)
    expected = files(groups)
    if args.check:
        lines = differences(expected, args.out)
        print("\n".join([*lines, f"{len(expected)} problems, {len(lines)} differences"]))
        return 1 if lines else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for name, content in expected.items():
        (args.out / name).write_bytes(content)
    print(f"{len(expected)} problems written to {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
