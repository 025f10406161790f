"""Random small orders against an exhaustive simulator; the table goes into README.md.

    python experiments/hangs/run.py [ORDERS] [FIRST_SEED]

Every order is judged under every rule, and every state that its ranks and transfers can reach is
visited (tests/support/hang_oracle.py, which shares no code with pipesat). A verdict that differs, a
cyclic wait that is none, a safe order that is not safe: each is printed, and the command fails.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from tables import put  # noqa: E402

from tests.support.hang_oracle import RULES, random_order, random_problem  # noqa: E402
from tests.support.hangs_judged import judged  # noqa: E402

POSTED = ("at their ops", "anyhow")
"""Where sends and receives stand: of every other order, some of them moved at random."""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found: Counter[tuple[str, str, str]] = Counter()
    states = 0
    for seed in range(first, first + count):
        rng = Random(seed)
        shape, doc = random_problem(rng)
        rows = random_order(doc, rng)
        anyhow = seed % 2 == 1
        for rule, outcome, wrong in judged(doc, rows, rng if anyhow else None):
            for complaint in wrong:
                print(f"seed {seed}, {shape}, {rule}: {complaint}", flush=True)
            kind = "hang" if outcome.hangs else "cross" if outcome.crossed else "safe"
            found[rule, shape, kind] += 1
            found[rule, POSTED[anyhow], kind] += 1
            found[rule, shape, "differ"] += bool(wrong)
            states += outcome.states
    shapes = [*POSTED, *sorted({shape for _, shape, _ in found} - {*POSTED})]
    lines = [["rule", *shapes, "verdicts that differ"], ["---"] * (len(shapes) + 2)]
    for rule in RULES:
        of = [[found[rule, s, kind] for kind in ("safe", "cross", "hang")] for s in shapes]
        differ = sum(found[rule, s, "differ"] for s in shapes)
        lines.append([rule, *(" / ".join(map(str, one)) for one in of), str(differ)])
    seeds = f"Seeds {first} to {first + count - 1}, {states:,} states. Safe / crossed / hangs:"
    put(HERE / "README.md", "random", lines, seeds)
    sys.exit(any(n for key, n in found.items() if key[2] == "differ"))


if __name__ == "__main__":
    main()
