"""Parts for tests: random documents, and the least time by trying every order.

The oracle reads the document itself and shares no code with pipesat.
"""

from __future__ import annotations

from random import Random
from typing import Any

# One layer, two streams: main 3 + 4, comm 5 + 6, and a W part of 2 that follows B's mlp.
BY_HAND: dict[str, Any] = {
    "format": "pipesat.parts/1",
    "time_unit": "us",
    "streams": ["main", "comm"],
    "chunks": [
        {
            "name": "moe",
            "F": [
                {"name": "attn", "stream": "main", "time": 3},
                {"name": "dispatch", "stream": "comm", "time": 5},
            ],
            "B": [
                {"name": "combine", "stream": "comm", "time": 6},
                {"name": "mlp", "stream": "main", "time": 4},
                {"name": "dispatch", "stream": "comm", "time": 1},
            ],
            "W": [{"name": "mlp W", "stream": "main", "time": 2, "after": "mlp"}],
        }
    ],
    "stages": ["moe", "moe"],
    "devices": [0, 0],
}


def random_parts(rng: Random) -> dict[str, Any]:
    """A document whose pairs have so few parts that every order can be tried."""
    streams = ["main", "comm", "side"][: rng.choice((1, 2, 2, 2, 3))]

    def row(most: int, letter: str) -> list[dict[str, Any]]:
        return [
            {"name": f"{letter}{n}", "stream": rng.choice(streams), "time": rng.randrange(6)}
            for n in range(rng.randrange(most + 1))
        ]

    chunks = []
    for name in ("a", "b")[: rng.choice((1, 2))]:
        backward = row(2, "B")
        weights = row(1 if len(backward) == 2 else 2, "W") if backward else []
        weights = [part | {"after": rng.choice(backward)["name"]} for part in weights]
        repeat = 2 if len(backward) + len(weights) < 2 and rng.randrange(2) else 1
        chunks.append(
            {"name": name, "repeat": repeat, "F": row(2, "F"), "B": backward, "W": weights}
        )
    stages = [rng.choice(chunks)["name"] for _ in range(rng.randrange(1, 4))]
    devices = [rng.randrange(2) for _ in stages]
    return {
        "format": "pipesat.parts/1",
        "streams": streams,
        "chunks": chunks,
        "stages": stages,
        "devices": devices,
    }


def least_by_trying(
    document: dict[str, Any], ops: list[tuple[str, str]], beyond: int = 10**6
) -> int:
    """Least time of ops, as (name of the chunk, kind), that run together."""
    jobs: list[tuple[str, int, list[int]]] = []  # stream, time, jobs before
    chunks = {chunk["name"]: chunk for chunk in document["chunks"]}
    for name, kind in ops:
        chunk = chunks[name]
        layers = chunk.get("repeat", 1)
        if kind == "F":
            _chain(jobs, [part for _ in range(layers) for part in chunk["F"]])
            continue
        where: dict[tuple[int, str], int] = {}
        if "B" in kind:
            first = len(jobs)
            _chain(jobs, [part for _ in range(layers) for part in chunk["B"]])
            names = [(layer, part["name"]) for layer in range(layers) for part in chunk["B"]]
            where = {name: first + n for n, name in enumerate(names)}
        if "W" in kind:
            for layer in range(layers):
                for part in chunk.get("W", []):
                    before = [where[layer, part["after"]]] if where else []
                    jobs.append((part["stream"], part["time"], before))
    return _shortest(jobs, {}, dict.fromkeys(document["streams"], 0), beyond)


def _chain(jobs: list[tuple[str, int, list[int]]], parts: list[dict[str, Any]]) -> None:
    for number, part in enumerate(parts):
        jobs.append((part["stream"], part["time"], [len(jobs) - 1] if number else []))


def _shortest(
    jobs: list[tuple[str, int, list[int]]], ends: dict[int, int], free: dict[str, int], best: int
) -> int:
    """Append every job that may come next, in turn; nothing is cut off but what cannot be best."""
    if len(ends) == len(jobs):
        return min(best, max(ends.values(), default=0))
    for number, (stream, time, before) in enumerate(jobs):
        if number not in ends and all(other in ends for other in before):
            end = max([free[stream], *(ends[other] for other in before)]) + time
            if end < best:
                best = _shortest(jobs, ends | {number: end}, free | {stream: end}, best)
    return best
