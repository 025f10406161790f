"""Layouts: which layers every stage has, in Megatron-LM's letters.

:mod:`pipesat.layers.layout` reads them, :mod:`pipesat.layers.layout` reads what other
frameworks take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pipesat.core.errors import BadInput
from pipesat.layers.layer import Layers, Role

SYMBOLS: Final[dict[Role, str]] = {"embedding": "E", "block": "t", "mtp": "m", "head": "L"}
WORDS: Final = {"E": "embedding", "t": "transformer layer", "m": "MTP layer", "L": "loss"}


@dataclass(frozen=True)
class MegatronLayout:
    """Every stage's layers as a text of ``E``, ``t``, ``m`` and ``L``; a stage may be empty."""

    stages: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Transformer layers of every stage."""
        return tuple(stage.count("t") for stage in self.stages)

    @property
    def text(self) -> str:
        """The string: three equal layers in a row and more are written ``t*3``."""
        return "|".join(map(_short, self.stages))


def partition_of_layout(layout: MegatronLayout, layers: Layers) -> tuple[range, ...]:
    """Cut layers as a layout says.

    ``E`` and ``L`` are passed over if no layer has the role ``embedding`` or ``head``: then their
    costs are in the first and the last block's.

    Raises
    ------
    BadInput
        If layers are lost, doubled or in another order.
    """
    roles = [SYMBOLS[layer.role] for layer in layers.layers]
    silent = {"E", "L"} - set(roles)
    given = ["".join(s for s in stage if s not in silent) for stage in layout.stages]
    flat = "".join(given)
    for symbol in "EtmL":
        has, wanted = flat.count(symbol), roles.count(symbol)
        if has != wanted:
            fate = "lost" if has < wanted else "too many"
            raise BadInput(
                f"{has} {symbol} ({WORDS[symbol]}), the model has {wanted}: "
                f"{abs(has - wanted)} {fate}",
                value=layout.text,
            )
    for number, (symbol, role) in enumerate(zip(flat, roles, strict=True)):
        if symbol != role:
            raise BadInput(
                f"its layer {number} is {symbol} ({WORDS[symbol]}), the model's "
                f"{layers.label(number)} is {role} ({WORDS[role]})",
                value=layout.text,
            )
    parts, begin = [], 0
    for stage in given:
        parts.append(range(begin, begin + len(stage)))
        begin += len(stage)
    return tuple(parts)


def layout_of_partition(layers: Layers, partition: Sequence[range]) -> MegatronLayout:
    """Layout of a partition; ``E`` and ``L`` are added where no layer has that role."""
    stages = ["".join(SYMBOLS[layers.layers[k].role] for k in part) for part in partition]
    flat = "".join(stages)
    if "E" not in flat:
        stages[0] = "E" + stages[0]
    if "L" not in flat:
        stages[-1] += "L"
    return MegatronLayout(tuple(stages))


def fewer_at_ends(
    blocks: int, stages: int, *, first_less: int = 1, last_less: int = 1
) -> MegatronLayout:
    """Layout of even stages, the first and the last with so many transformer layers less.

    As torchtitan's ``pipeline_parallel_first_stage_less_layers`` and ``..._last_stage_...``: with
    ``blocks + first_less + last_less`` cut evenly, the first stages get what remains.

    Raises
    ------
    BadInput
        If an end would have less than no layer, or a stage nothing.
    """
    whole = blocks + first_less + last_less
    for name, value in (("first_less", first_less), ("last_less", last_less)):
        if value < 0:
            raise BadInput("expected at least 0", where=name, value=value)
    if not 1 <= stages <= whole:
        raise BadInput(f"expected from 1 to {whole}", where="stages", value=stages)
    size, more = divmod(whole, stages)
    if stages == 1:
        return MegatronLayout(("E" + "t" * blocks + "L",))
    for name, value in (("first_less", first_less), ("last_less", last_less)):
        if value > size:
            raise BadInput(f"expected at most {size}, a stage's layers", where=name, value=value)
    counts = [size + (stage < more) for stage in range(stages)]
    counts[0] -= first_less
    counts[-1] -= last_less
    texts = ["t" * count for count in counts]
    return MegatronLayout(("E" + texts[0], *texts[1:-1], texts[-1] + "L"))


def _short(stage: str) -> str:
    """Write ``Ettt`` as ``Et*3``, as Megatron's documentation does."""
    for symbol in "tm":
        count = stage.count(symbol)
        if count > 2:
            stage = stage.replace(symbol * count, f"{symbol}*{count}")
    return stage


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


_LAYER: Final = re.compile(r"(?:[a-z_]+\.)*(?:layers|h|blocks)\.(0|[1-9][0-9]{0,5})")
_EMBEDDINGS: Final = ("tok_embeddings", "embed_tokens", "word_embeddings", "wte")
_HEADS: Final = ("output", "lm_head")
_FREE: Final = ("norm", "final_layernorm", "ln_f", "rotary_emb", "freqs_cis", "wpe")


def layout_of_module_names(document: object) -> MegatronLayout:
    """Read a list of lists of names.

    Raises
    ------
    BadInput
        With the place in the list: names that are not known, and layers that are lost, doubled or
        not in order.
    """
    if not isinstance(document, list) or not document:
        raise BadInput("expected a list of lists of names", value=document)
    stages, seen, ends = [], 0, {"E": "", "L": ""}
    for number, names in enumerate(document):
        if not isinstance(names, list):
            raise BadInput("expected a list of names", where=f"[{number}]", value=names)
        stage = ""
        for place, name in enumerate(names):
            where = f"[{number}][{place}]"
            symbol = _symbol(name, where)
            if symbol == "t":
                index = int(name.rpartition(".")[2])
                if index != seen:
                    fate = "it stands twice" if index < seen else f"layer {seen} is lost before it"
                    raise BadInput(fate, where=where, value=name)
                seen += 1
            elif symbol in ends:
                if ends[symbol]:
                    raise BadInput(f"{ends[symbol]} is one already", where=where, value=name)
                ends[symbol] = where
            stage += symbol
        stages.append(stage)
    for symbol, known in (("E", _EMBEDDINGS), ("L", _HEADS)):
        if not ends[symbol]:
            raise BadInput(f"none of {', '.join(known)} is there")
    flat = "".join(stages)
    if flat[0] != "E" or flat[-1] != "L":
        raise BadInput("expected the embedding first and the head last")
    return MegatronLayout(tuple(stages))


def _symbol(name: object, where: str) -> str:
    """Symbol of a name in layouts; empty for what costs nothing."""
    if isinstance(name, str):
        if _LAYER.fullmatch(name):
            return "t"
        end = name.rpartition(".")[2]
        if end in _EMBEDDINGS:
            return "E"
        if end in _HEADS:
            return "L"
        if end in _FREE:
            return ""
    known = ", ".join(("layers.N", *_EMBEDDINGS, *_HEADS, *_FREE))
    raise BadInput(f"expected one of {known}", where=where, value=name)
