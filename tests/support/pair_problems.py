"""Problems with pairs of any kinds, drawn by chance, for tests of hand-written schedules."""

from __future__ import annotations

import random

from pipesat.core.ops import KINDS
from pipesat.core.problem import Problem
from pipesat.files.problem_file import FORMAT, parse_problem


def drawn(rng: random.Random) -> Problem:
    """Up to 3 devices of up to 3 stages, one or two routes, memory down to the least, any pairs."""
    devices = rng.randint(1, 3)
    homes = [rng.randrange(devices) for _ in range(rng.randint(1, 6))]
    stages = [
        {key: rng.randint(0, 6) for key in ("F", "B", "W", "BW")}
        | {key: rng.randint(0, 3) for key in ("held_after_F", "held_after_B")}
        | {"device": home, "backward": rng.choice(["either", "either", "split", "fused"])}
        for home in homes
    ]
    kinds = [
        (f"{a}{x}", f"{b}{y}")
        for a in range(len(homes))
        for b in range(a, len(homes))
        for x in KINDS
        for y in KINDS
        if homes[a] == homes[b] and (a < b or KINDS.index(x) <= KINDS.index(y))
    ]
    pairs = rng.sample(kinds, min(len(kinds), rng.randint(1, 12)))
    cut = rng.randint(1, len(homes))
    routes = [range(cut), range(cut, len(homes))]
    return parse_problem(
        {
            "format": FORMAT,
            "devices": [{"memory": rng.choice([None, 6, 9, 14])} for _ in range(devices)],
            "stages": stages,
            "routes": [
                {"stages": list(route), "microbatches": rng.randint(1, 5)}
                for route in routes
                if len(route)
            ],
            "comm": {"default": rng.choice([0, 2])},
            "overlap": {"pairs": [{"ops": [*ops], "time": rng.randint(1, 9)} for ops in pairs]},
        }
    )
