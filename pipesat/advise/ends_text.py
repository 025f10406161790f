"""In words, whether the advice holds at all ends of an estimate's ranges."""

from __future__ import annotations

from fractions import Fraction

from pipesat.advise.answer import Answer, time_text
from pipesat.advise.ends import End
from pipesat.advise.rows import Row
from pipesat.advise.sentence import name_of
from pipesat.core.claims import against


def ends_text(answer: Answer) -> str:
    """Say whether the advice stays the shortest at all ends; empty without a range."""
    chosen, ends = answer.chosen, answer.ends
    if chosen is None or not ends:
        return ""
    varied = dict[str, list[End]]()
    for end in ends:
        varied.setdefault(end.what, []).append(end)
    names = [f"{what} at {_shares(own)}" for what, own in varied.items()]
    kept = "forwards against backwards and links stay as estimated"
    start = (
        "rows timed again in their own order, one thing varied at a time, as a share of its "
        f"estimate: {', '.join(names)} ({kept}; orders and splits are not searched again)"
    )
    better = [_better(answer, chosen, end) for end in ends if end.least[1] < end.of(chosen)]
    if not better:
        closest = _closest(answer, chosen, ends)
        return f"{start}: the advice stays the shortest row that runs{closest}"
    return f"{start}: the advice depends on the estimate: {'; '.join(better)}"


def _closest(answer: Answer, chosen: Row, ends: tuple[End, ...]) -> str:
    """Say where another row comes closest, and how close; empty if there is no other."""
    others = [
        (Fraction(time, max(1, end.of(chosen))), number, place)
        for number, end in enumerate(ends)
        for place, (row, time) in enumerate(end.rows)
        if row is not chosen
    ]
    if not others:
        return ""
    _, number, place = min(others)
    end, (row, time) = ends[number], ends[number].rows[place]
    gain = against(end.of(chosen), time, name_of(answer, row), 1)
    return f", least with {end.what} at {float(end.share):.2f}: {gain}"


def _shares(ends: list[End]) -> str:
    return " and ".join(f"{float(end.share):.2f}" for end in ends)


def _better(answer: Answer, chosen: Row, end: End) -> str:
    row, least = end.least
    gain = against(least, end.of(chosen), "the advice", 1)
    takes = time_text(answer.question, least)
    where = f"with {end.what} at {float(end.share):.2f}"
    return f"{where}, {name_of(answer, row)} takes {takes}, {gain}"
