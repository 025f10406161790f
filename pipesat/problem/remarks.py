"""What stages or layers state and perhaps do not mean; never an error.

A remark says what the statement does, so that an answer about it is not taken for one about
something else. :mod:`pipesat.problem.stated` has the rules about whole problems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from pipesat.core.amounts import exact_text
from pipesat.core.grouping import grouped
from pipesat.core.showing import ranges, sentences
from pipesat.problem.stage import AMOUNTS, HELD, Stage

_BACKWARD: Final = {
    "either": {"split", "fused"},
    "split": {"split"},
    "fused": {"fused"},
    "none": set(),
}
_NAMED: Final = 3  # classes or modes, in a line of many


class Remark(NamedTuple):
    """One statement that may not be meant.

    Attributes
    ----------
    path, value
        Where it stands in the file, as in errors, and what stands there.
    fact, figures
        What is remarkable, and the numbers that show it.
    means
        What it does to an answer, and what else to state.
    what, number
        ``stage``, ``device``, ``layer`` or ``route``, and which; ``None``: the whole problem.
    within
        The class or mode of it, if it is not the stage itself.
    """

    path: str
    value: int | str | None
    fact: str
    figures: str
    means: str
    what: str = "stage"
    number: int | None = None
    within: str = ""

    @property
    def text(self) -> str:
        """Stage, value and meaning in words."""
        return _line([self])


def text_of(remarks: Sequence[Remark]) -> str:
    """Return all remarks as sentences, those of many stages alike as one."""
    keys = ((one.what, one.within.partition(" ")[0], one.fact) for one in remarks)
    alike = grouped(zip(keys, remarks, strict=True))
    return sentences(map(_line, alike.values()))


def _line(alike: Sequence[Remark]) -> str:
    first, who = alike[0], ""
    if first.number is not None:
        numbers = sorted({one.number for one in alike if one.number is not None})
        who = f"{first.what}{'s' * (len(numbers) > 1)} {ranges(numbers)}"
        who += f" in {_names([one.within for one in alike])}" if first.within else ""
        who += ": "
    figures = first.figures
    if figures and len({one.figures for one in alike}) > 1:
        figures += f" on {first.what} {first.number}"
    return f"{who}{first.fact}{f' ({figures})' if figures else ''}. {first.means}"


def _names(within: Sequence[str]) -> str:
    """``class long, short and 2 more``; each begins with the same word."""
    first, *others = dict.fromkeys(within)
    names = [first, *(name.partition(" ")[2] for name in others)]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def documents_of(remarks: Iterable[Remark]) -> list[dict[str, int | str | None]]:
    """Return ``remarks`` of a JSON document: one for each statement."""
    # an entry of a file may be many layers
    found = grouped(((one.path, one.fact), one) for one in remarks)
    return [
        {"path": path, "value": alike[0].value, "text": _line(alike)}
        for (path, _), alike in found.items()
    ]


Found: TypeAlias = tuple[str, int | str, str, str, str]
"""Key, value, fact, figures, meaning."""


def remarks_at(
    number: int, path: str, found: Iterable[Found], what: str = "stage", within: str = ""
) -> Iterator[Remark]:
    """Yield remarks on a stage or layer whose entry in the file is at ``path``."""
    for key, value, fact, figures, means in found:
        yield Remark(f"{path}.{key}", value, fact, figures, means, what, number, within)


def of_amounts(s: Stage, stated: Collection[str], units: tuple[str, str]) -> Iterator[Found]:
    """Yield remarks on amounts of a stage, a mode, a class or a layer, in units of time and memory.

    ``stated`` are the keys that stand there: what was stated elsewhere has its remark there.
    """
    time_unit, memory_unit = units
    times = {"B", "W", "BW"} & {*stated}
    if s.may_fuse and s.may_split and s.BW > s.B + s.W and times:
        yield (
            "BW",
            s.BW,
            "BW is longer than B + W",
            _both(s.BW, s.B + s.W, time_unit),
            "A backward may run as B and W, which take less. If BW recomputes activations, add that"
            " time to B, or make the backward fused",
        )
    if s.may_fuse and s.BW < s.B and times - {"W"}:
        figures = _both(s.BW, s.B, time_unit)
        yield "BW", s.BW, "BW is shorter than B", figures, "BW is the whole backward, B and W"
    whole = s.has_backward and not s.may_split
    if whole and s.held_after_B > s.held_after_F and "held_after_B" in stated:
        yield (
            "held_after_B",
            s.held_after_B,
            "held_after_B is above held_after_F, and no backward is split",
            _both(s.held_after_B, s.held_after_F, memory_unit),
            "It is held from B to W alone, so never here. What a whole backward holds while it"
            " runs is held_in_backward",
        )


def _both(one: int, other: int, unit: str) -> str:
    return f"{exact_text(one, unit)} against {exact_text(other, unit)}"


def of_variant(s: Stage, other: Stage, name: str) -> Iterator[tuple[str, str]]:
    """Yield what makes another way to run a stage pointless, or ``s`` itself: fact and meaning."""
    ways, theirs = _BACKWARD[s.backward], _BACKWARD[other.backward]
    pairs = [(getattr(s, key), getattr(other, key)) for key in AMOUNTS]
    if theirs <= ways and all(b >= a for a, b in pairs):
        yield (
            f"{name} is never better than without",
            "It takes no less time and holds no less memory, so nothing is gained by it",
        )
    elif ways <= theirs and all(b <= a for a, b in pairs) and _holds_less(s, other):
        yield (
            f"{name} holds less and takes no longer",
            "It is free: whatever may, runs in it. Recomputing takes time: add it to B and BW",
        )


def _holds_less(s: Stage, other: Stage) -> bool:
    return any(getattr(other, key) < getattr(s, key) for key in HELD)


def of_limit(path: str, memory: int, unit: str) -> Remark:
    """Return the remark on a capacity where nothing is held."""
    return Remark(
        path,
        memory,
        "memory is limited, and nothing states what it holds",
        exact_text(memory, unit),
        "Without held_after_F or held_after_B, no schedule is limited by it",
        what="",
    )
