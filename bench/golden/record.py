"""The recorded answers, and how those of now differ from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from golden.cases import Case
from golden.look import differences

RECORD = Path(__file__).resolve().parent / "record.jsonl"
Kept = dict[str, Any]
Record = dict[str, dict[str, Kept]]
Again = Callable[[Case, float], dict[str, Kept]]


def compare(record: Record, now: Record, chosen: Sequence[Case], again: Again) -> Iterator[str]:
    """Yield each difference; a search by the clock may try ``again`` with more time first."""
    for case in chosen:
        if case.name not in record:
            yield f"{case.name}: not recorded"
            continue
        found = list(_of_case(case, record[case.name], now[case.name]))
        for more in (3.0, 9.0):
            if any(held == "within" for held, _ in found):
                found = list(_of_case(case, record[case.name], again(case, more)))
        for _, text in found:
            yield f"{case.name}: {text}"


def _of_case(
    case: Case, before: dict[str, Kept], now: dict[str, Kept]
) -> Iterator[tuple[str, str]]:
    asks = {ask.name: ask for ask in case.asks}
    for name in dict.fromkeys((*before, *now)):
        ask = asks.get(name)
        held, words = ("exact", name) if ask is None else (ask.held, ask.words)
        if name not in now or name not in before:
            yield held, f"{words}: {'was asked, is not any more' if name in before else 'new'}"
        else:
            for text in differences(before[name], now[name], held):
                yield held, f"{words}\n    {text}"


def read() -> Record:
    """Return what is recorded, by case and ask."""
    lines = RECORD.read_text(encoding="utf-8").splitlines() if RECORD.exists() else []
    return {name: kept for line in lines for name, kept in json.loads(line).items()}


def write(record: Record) -> None:
    """Keep a line for each case."""
    lines = [
        json.dumps({name: kept}, ensure_ascii=False, separators=(",", ":"))
        for name, kept in sorted(record.items())
    ]
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
