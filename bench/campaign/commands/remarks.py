"""What is stated and perhaps not meant: a remark that names it, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench.campaign.case import Case
from bench.campaign.judge import load
from tests.oracle.reading import Document

FAMILIES = ("plain", "zeros", "pairs", "graphs", "forward-only")
"""Without modes and lists, whose amounts have remarks of their own."""


def case(case: Case) -> None:
    document = case.problem()
    words = ["--workers", 1, "--time-limit", 0.2, "-o", "out", "--json"]
    ran = case.run("solve", "problem.json", *words, codes=(0, 3))
    result = ran.json()
    if ran.code not in (0, 3) or not case.expect(isinstance(result, dict), "prints no result"):
        return
    written = load(case.folder / "out" / "result.json")["remarks"]
    case.expect(written == result["remarks"], f"result.json has the remarks {written}")
    case.violations += false_remarks(document, result["remarks"])


def false_remarks(document: Document, said: list[dict[str, Any]]) -> Iterator[str]:
    """Hold remarks on BW and on held_after_B against what stages state."""
    places = Counter((one["path"], one["value"]) for one in said)
    for number, stage in enumerate(document["stages"]):
        kind, b, w = stage["backward"], stage["B"], stage["W"]
        bw, held = stage.get("BW", b + w), stage.get("held_after_B", 0)
        for key, value, due in (
            ("BW", bw, (kind == "either" and not b <= bw <= b + w) or (kind == "fused" and bw < b)),
            ("held_after_B", held, kind == "fused" and held > stage.get("held_after_F", 0)),
        ):
            path = f"stages[{number}].{key}"
            if places[path, value] != due:
                yield f"{path} is {value}: {places[path, value]} remarks, {int(due)} due"
    for one in said:
        if set(one) != {"path", "value", "text"} or not one["text"]:
            yield f"a remark is {one}"
