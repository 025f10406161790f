"""Layout strings, as Megatron-LM takes them, read with errors that name the character.

``E`` embedding, ``t`` transformer layer, ``m`` multi-token-prediction layer, ``L`` loss (the head);
``|`` parts stages, commas mean nothing, ``x*n`` and ``(...)*n`` repeat; groups do not nest. Stage s
of S lies on rank s mod p. (Facts of Megatron-LM core, pipeline_parallel_layer_layout.py, 2026-08.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pipesat.core.errors import BadInput
from pipesat.layers.layout import WORDS, MegatronLayout

_MOST: Final = 100_000
_DIGITS: Final = frozenset("0123456789")


class Symbol(NamedTuple):
    """One layer of a layout, or a bar; and the character of the text that it comes from."""

    text: str
    place: int


def parse_layout(
    text: str, *, blocks: int | None = None, mtp: int | None = None, devices: int | None = None
) -> MegatronLayout:
    """Read a layout string, with the rules that Megatron-LM checks.

    Parameters
    ----------
    blocks, mtp
        How many ``t`` and ``m`` the model has; ``None``: not checked.
    devices
        Ranks, a divisor of the number of stages; ``None``: not checked.

    Raises
    ------
    BadInput
        Naming the character, counted from 1, and what would be right there.
    """
    symbols = _Reader(text).symbols()
    stages: list[list[Symbol]] = [[]]
    for symbol in symbols:
        if symbol.text == "|":
            stages.append([])
        else:
            stages[-1].append(symbol)
    _check_order([s for s in symbols if s.text != "|"], text)
    _check_counts(symbols, {"t": blocks, "m": mtp}, text)
    if devices is not None and len(stages) % devices:
        raise BadInput(
            f"{len(stages)} stages, expected a multiple of {devices}, the ranks", value=text
        )
    _check_mtp(stages, devices, text)
    return MegatronLayout(tuple("".join(symbol.text for symbol in stage) for stage in stages))


class _Reader:
    """Turns a text into symbols, each knowing its character."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def symbols(self) -> list[Symbol]:
        """All of the text."""
        found = self._sequence(inside=False)
        if not any(symbol.text != "|" for symbol in found):
            raise BadInput("the layout has no layer", value=self.text)
        return found

    def _sequence(self, *, inside: bool) -> list[Symbol]:
        """Read to the end, or to the end of a group."""
        found: list[Symbol] = []
        while self.place < len(self.text):
            character = self.text[self.place]
            begin = self.place
            self.place += 1
            if character == ",":
                continue
            if character == ")" and inside:
                self.place = begin
                break
            if character in "EtmL|":
                part = [Symbol(character, begin)] * self._times(needed=False)
            elif character == "(" and not inside:
                part = self._group(begin)
            else:
                raise self.error(begin, self._expected(character, inside=inside))
            found += part
            if len(found) > _MOST:
                raise self.error(begin, f"more than {_MOST} layers and bars up to here")
        return found

    def _group(self, begin: int) -> list[Symbol]:
        inner = self._sequence(inside=True)
        if self.place == len(self.text):
            raise self.error(begin, "this ( has no )")
        if not inner:
            raise self.error(self.place, "expected a layer or | before the )")
        self.place += 1
        times = self._times(needed=True)
        if len(inner) * times > _MOST:
            raise self.error(begin, f"more than {_MOST} layers and bars")
        return inner * times

    def _times(self, *, needed: bool) -> int:
        """Read ``*n`` if it stands here; 1 if not."""
        if self.place == len(self.text) or self.text[self.place] != "*":
            if needed:
                raise self.error(self.place, "expected *n after a group")
            return 1
        begin = self.place + 1
        self.place = begin
        while self.place < len(self.text) and self.text[self.place] in _DIGITS:
            self.place += 1
        digits = self.text[begin : self.place]
        if not digits:
            raise self.error(begin, "expected a number after *")
        if len(digits) > len(str(_MOST)) or not 1 <= int(digits) <= _MOST:
            raise self.error(begin, f"expected a number from 1 to {_MOST}")
        return int(digits)

    @staticmethod
    def _expected(character: str, *, inside: bool) -> str:
        if character == "(" and inside:
            return "groups cannot stand in groups"
        if character == ")":
            return "this ) has no ("
        if character == "*":
            return "there is nothing to repeat before this *"
        near = {"e": "E", "l": "L", "T": "t", "M": "m"}.get(character)
        known = "expected E, t, m, L, |, a comma or a group in parentheses"
        return known + (f"; {near} is meant, perhaps" if near else "")

    def error(self, place: int, expected: str) -> BadInput:
        """A complaint about one character."""
        return _at(self.text, place, expected)


def _at(text: str, place: int, expected: str) -> BadInput:
    what = repr(text[place]) if place < len(text) else "the end"
    before = text[max(0, place - 12) : place]
    near = f" after {before!r}" if before else ""
    return BadInput(f"{what}{near}: {expected}", where=f"character {place + 1}")


def _check_order(symbols: Sequence[Symbol], text: str) -> None:
    """E once and first, L once and last, m after every t."""
    for end in ("E", "L"):
        found = [symbol for symbol in symbols if symbol.text == end]
        if not found:
            raise BadInput(f"there is no {end} ({WORDS[end]})", value=text)
        if len(found) > 1:
            raise _at(text, found[1].place, f"a second {end} ({WORDS[end]})")
    if symbols[0].text != "E":
        raise _at(text, symbols[0].place, "expected E, the embedding, first")
    if symbols[-1].text != "L":
        raise _at(text, symbols[-1].place, "expected L, the loss, last")
    seen_mtp = False
    for symbol in symbols:
        seen_mtp = seen_mtp or symbol.text == "m"
        if seen_mtp and symbol.text == "t":
            raise _at(text, symbol.place, "a t after an m: MTP layers come after all others")


def _check_counts(symbols: Sequence[Symbol], wanted: dict[str, int | None], text: str) -> None:
    for symbol, count in wanted.items():
        found = [s for s in symbols if s.text == symbol]
        if count is None or len(found) == count:
            continue
        numbers = f"{len(found)} {symbol} ({WORDS[symbol]}), the model has {count}"
        if len(found) > count:
            raise _at(text, found[count].place, f"{numbers}: the first one too many")
        raise BadInput(f"{numbers}: {count - len(found)} lost", value=text)


def _check_mtp(stages: Sequence[Sequence[Symbol]], devices: int | None, text: str) -> None:
    """All m on one stage, which is the last of its rank's."""
    having = [number for number, stage in enumerate(stages) if any(s.text == "m" for s in stage)]
    if not having:
        return
    place = next(s.place for s in stages[having[-1]] if s.text == "m")
    if len(having) > 1:
        which = " and ".join(map(str, having[:2]))
        raise _at(text, place, f"MTP layers on stages {which}, expected all on one")
    if devices is not None and having[0] < len(stages) - devices:
        raise _at(
            text,
            place,
            f"an MTP layer on stage {having[0]}, expected one of the last {devices} stages",
        )
