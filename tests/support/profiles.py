"""A profile written by hand, whose every number a test can work out."""

from __future__ import annotations

from pipesat.layers.profile.profile_file import FORMAT

MIB = 1 << 20
ACTIVATION, TOKENS = 256 * MIB, 1 * MIB


def times(median):
    return {"median": median, "low": median / 2, "high": median * 2, "times": [median]}


def tensor(size, dtype="float32"):
    return {"shape": [size // 4], "dtype": dtype, "bytes": size}


def weights(mib, *, trainable=True):
    return {
        "dtype": "float32",
        "elements": mib * MIB // 4,
        "bytes": mib * MIB,
        "trainable": trainable,
    }


def costs(F, B, W, BW, held_f, held_b, mib, transient=(0, 0, 0, 0), no_split=""):
    split = {} if no_split else {"B": times(B), "W": times(W), "held_after_B": held_b * MIB}
    return split | {
        "F": times(F),
        "BW": times(BW),
        "no_split": no_split,
        "held_after_F": held_f * MIB,
        "transient": dict(zip(("F", "B", "W", "BW"), (t * MIB for t in transient), strict=True)),
        "input": tensor(ACTIVATION),
        "output": tensor(ACTIVATION),
        "parameters": [weights(mib)],
        "buffers": 0,
    }


def document(blocks=2, **changes):
    """Embedding, blocks, head; see the numbers below."""
    kinds = {
        "embedding": costs(1000.0, 0, 0, 3000.0, 300, 0, 40, (1, 0, 0, 5), "no input gradient")
        | {"input": tensor(TOKENS, "int64")},
        "block": costs(2000.0, 2500.0, 1500.0, 3800.0, 800, 1000, 100, (10, 20, 7, 30)),
        "head": costs(4000.0, 3000.0, 2000.0, 4600.0, 500, 400, 50, (0, 90, 0, 60))
        | {"output": tensor(4 * MIB)},
    }
    names = ["embedding", *["block"] * blocks, "head"]
    return {
        "format": FORMAT,
        "name": "by hand",
        "model": {"source": "call"},
        "environment": {
            "device": "cpu",
            "device_name": "none",
            "dtype": "float32",
            "threads": 1,
            "torch": "2.13",
            "python": "3.12",
            "platform": "none",
            "pipesat": "0.1.0",
        },
        "options": {"samples": 1, "warmup": 0},
        "microbatch": {"input": tensor(TOKENS, "int64"), "target": tensor(TOKENS, "int64")},
        "layers": [{"name": f"{kind} {i}", "kind": kind} for i, kind in enumerate(names)],
        "kinds": kinds,
    } | changes
