"""Draw the corpus: problems, layers and parts by fixed seeds, kept in `corpus.jsonl`.

    python bench/golden/draw.py

Kept as drawn, because generators change: new families are appended, lines that stand stay.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)
sys.path.insert(1, str(HERE.parent.parent))

from campaign.problems import PROBLEMS  # noqa: E402
from campaign.problems.layered import layers  # noqa: E402
from hypothesis import Phase, given, seed, settings  # noqa: E402
from hypothesis.strategies import SearchStrategy  # noqa: E402

from tests.support import class_documents, paired, tiny_modes, zero_lengths  # noqa: E402
from tests.support.pair_problems import drawn as drawn_pairs  # noqa: E402
from tests.support.placed_problems import opposite_routes, vees  # noqa: E402
from tests.support.problems import problems  # noqa: E402
from tests.support.readers import make_world  # noqa: E402

Document = dict[str, Any]
CORPUS = HERE / "corpus.jsonl"
EACH = {"campaign": 12, "support": 6}
"""How many of a family."""

SUPPORT: dict[str, Callable[[Random], Document]] = {
    "classes-oracle": lambda rng: class_documents.random_document(rng.getrandbits(32)),
    "classes-chunked": lambda rng: class_documents.chunked_document(rng.getrandbits(32)),
    "classes-paired": lambda rng: class_documents.paired_document(rng.getrandbits(32)),
    "classes-tight": lambda rng: class_documents.tight_chain_document(rng.getrandbits(32)),
    "zeros": zero_lengths.random_document,
    "paired": paired.random_paired_document,
    "paired-tight": paired.random_tight_document,
    "paired-waiting": paired.random_waiting_document,
    "paired-ranks": paired.random_rank_document,
    "paired-any": lambda rng: dict(drawn_pairs(rng).document),
    "modes-tiny": tiny_modes.tiny,
    "modes-chain": tiny_modes.tiny_chain,
}
STRATEGIES: dict[str, SearchStrategy[Any]] = {
    "strategy": problems(),
    "strategy-vee": vees(max_devices=6, max_microbatches=10),
    "strategy-opposite": opposite_routes(max_devices=6, max_microbatches=8),
}

WORLD = ("problem.json", "profile.json", "links.json", "modules.json")
WORLD += ("trace-0.json", "trace-1.json")


def corpus() -> Iterator[tuple[str, str, Document]]:
    """Yield what is drawn: its kind (problem or layers), its name, its document."""
    for family, make in PROBLEMS.items():
        for number in range(EACH["campaign"]):
            yield "problem", f"{family}-{number}", make(Random(f"golden {family} {number}"))
    for family, make in SUPPORT.items():
        for number in range(EACH["support"]):
            yield "problem", f"{family}-{number}", make(Random(f"golden {family} {number}"))
    for family, strategy in STRATEGIES.items():
        for number, document in enumerate(_examples(strategy)):
            yield "problem", f"{family}-{number}", document
    for number in range(40):
        rng = Random(f"golden layers {number}")
        yield "layers", f"layers-{number}", layers(rng, rng.randint(4, 6))
    with tempfile.TemporaryDirectory() as folder:
        make_world(Path(folder))
        for name in WORLD:
            yield "file", name, json.loads((Path(folder) / name).read_text(encoding="utf-8"))


def _examples(strategy: SearchStrategy[Any]) -> list[Document]:
    """The first problems that a strategy of the tests yields with a fixed seed."""
    found: list[Document] = []

    @seed(29)
    @settings(max_examples=EACH["support"], phases=[Phase.generate], database=None)
    @given(strategy)
    def take(problem: Any) -> None:
        found.append(json.loads(json.dumps(problem.document)))

    take()
    return found


def main() -> None:
    """Append what the corpus does not have yet."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines() if CORPUS.exists() else []
    known = {json.loads(line)["name"] for line in lines}
    for kind, name, document in corpus():
        if name not in known:
            entry = {"kind": kind, "name": name, "document": document}
            lines.append(json.dumps(entry, ensure_ascii=False, separators=(",", ":")))
    CORPUS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} documents, {CORPUS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
