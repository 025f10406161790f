"""Times of small chunks against every order tried; the table goes into README.md.

    python experiments/2026-11-22-pair-times-from-parts/2_small_shops.py [DOCUMENTS] [FIRST_SEED]

The oracle reads the document itself, appends parts in every order, and shares no code with pipesat.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from pipesat.parts.file import parse_parts  # noqa: E402
from pipesat.parts.parts import fault_of  # noqa: E402
from pipesat.workflows.pair_times import pair_times  # noqa: E402
from tests.support.parts import least_by_trying, random_parts  # noqa: E402

BEGIN, END = "<!-- begin small -->\n", "<!-- end small -->"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seen: Counter[str] = Counter()
    wrong = 0
    for seed in range(first, first + count):
        document = random_parts(Random(seed))
        found = pair_times(parse_parts(document), deterministic=True)
        every = [((op,), least) for op, least in found.alone.items()]
        for ops, least in [*every, *found.together.items()]:
            named = [(found.parts.chunks[op.chunk].name, op.kind) for op in ops]
            true = least_by_trying(document, named)
            length, bound = least.plan.length, least.bound.value
            fault = fault_of(least.shop, least.plan)
            seen["alone" if len(ops) == 1 else "together"] += 1
            seen["proven"] += length == bound
            if fault or not bound <= true <= length or (length == bound) != (length == true):
                wrong += 1
                print(f"seed {seed}, {named}: {bound} <= {true} <= {length}? {fault}", flush=True)
    total = seen["alone"] + seen["together"]
    table = (
        f"Seeds {first} to {first + count - 1}.\n\n"
        "| documents | times alone | times together | proven | wrong |\n"
        "| ---: | ---: | ---: | ---: | ---: |\n"
        f"| {count} | {seen['alone']:,} | {seen['together']:,} | {seen['proven']:,} of {total:,} "
        f"| {wrong} |\n"
    )
    print(table)
    readme = HERE / "README.md"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    readme.write_text(pattern.sub(lambda _: BEGIN + table + END, readme.read_text()))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
