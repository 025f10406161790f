"""What an answer prints of gains, limits and amounts, taken apart into figures and their names."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from campaign.judge.limits import NUMBER, shown

_CHANGE = re.compile(rf"{NUMBER} % (shorter|longer)")
_AGAINST = re.compile(
    rf"(?:{NUMBER} % (?:shorter|longer) than|as long as) "
    rf"(?P<name>[^(;]+?) \((?P<time>{NUMBER})[^)]*\)"
)
_COUNT = re.compile(r"\b([\d,]+) of (?:its |the |all |their )?([\d,]+)\b(?! ?(?:[KMGT]?i?B|%))")
_LIMIT = re.compile(rf"\bgap\s+{NUMBER} %|at most {NUMBER} %|{NUMBER} % at most")
_SCOPE = re.compile(
    r"\b(this|any|all|every|whichever|chain|loop|loops|V|vee|orders?|partitions?|splits?|cuts?)\b"
)
_OF = re.compile(r"(?<![\d.,])([\d.,]+) ([KMGT]?i?B) of ([\d.,]+) ([KMGT]?i?B)\b")
_UNITS = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


class Gain(NamedTuple):
    """One comparison: the alternative's name and time, and the change as printed."""

    name: str
    time: str
    change: str
    sentence: str

    @property
    def count(self) -> tuple[int, int] | None:
        """(tried, all) if it says how many of how many settings were tried."""
        found = _COUNT.search(self.sentence)
        return None if found is None else (_int(found[1]), _int(found[2]))

    @property
    def family(self) -> str:
        if re.search("interleaved", self.name, re.IGNORECASE):
            return "interleaved-1f1b"
        return "1f1b" if re.search(r"(?<!-)\b1f1b", self.name, re.IGNORECASE) else ""


def _int(text: str) -> int:
    return int(text.replace(",", ""))


def sentences(text: str) -> list[str]:
    """Sentences of an answer's text; a dot inside a number ends none."""
    flat = " ".join(text.split())
    return [one for one in re.split(r"(?<=[^\s])\. (?=[A-Z0-9])|; ", flat) if one]


def gains_in(text: str) -> Iterator[Gain]:
    """Yield every comparison with a named alternative whose time is printed."""
    for sentence in sentences(text):
        for found in _AGAINST.finditer(sentence):
            change = _CHANGE.search(found[0])
            yield Gain(found["name"], found["time"], change[0] if change else "", sentence)


def nameless_gains(text: str) -> Iterator[str]:
    """Yield comparisons that do not say with what: neither "than" nor "from ... to ..."."""
    for sentence in sentences(text):
        if _CHANGE.search(sentence) and not re.search(
            r"(?i)% (shorter|longer) than \S|\bfrom\b.*\bto\b|\d[\d,.]*(?: ms)? to [\d,.]+|against",
            sentence,
        ):
            yield sentence


def false_product(whole: str, others: Sequence[str]) -> str | None:
    """Hold the parts of a gain against the whole: shares of time that multiply to it.

    Parts follow in the sentence of the whole, else they are the sentences that compare with none.
    """
    head, parted, tail = whole.partition(": the ")
    total, parts = _CHANGE.search(head), [*_CHANGE.finditer(tail)]
    if not parted:
        own = [text for text in others if not re.search("% (shorter|longer) than|as long", text)]
        parts = [found for text in own for found in _CHANGE.finditer(text)]
        if not own:
            return None

    def left(found: re.Match[str] | None) -> tuple[Fraction, Fraction]:
        if found is None:
            return Fraction(1), Fraction(0)
        said = shown(found[1])
        return 1 + (said.value if found[2] == "longer" else -said.value), said.step

    product, off = Fraction(1), Fraction(0)
    for part in parts:
        share, step = left(part)
        product, off = product * share, off + step
    share, step = left(total)
    if abs(product - share) <= off + step:
        return None
    words = [part[0] for part in parts if part is not None]
    return f"{words} multiply to {float(product):.4f}, the whole is {total and total[0]}"


def nameless_limits(text: str) -> Iterator[str]:
    """Yield sentences with a limit that do not say what it is a limit of."""
    return (s for s in sentences(text) if _LIMIT.search(s) and not _SCOPE.search(s))


def beyond_capacity(text: str) -> Iterator[str]:
    """Yield every "74.6 GiB of 74.5 GiB": the part as printed is more than the whole."""
    for found in _OF.finditer(text):
        part, whole = (
            Fraction(found[n].replace(",", "").rstrip(".")) * 2 ** _UNITS[found[n + 1]]
            for n in (1, 3)
        )
        if part > whole:
            yield found[0]


def two_figures(texts: Sequence[str]) -> Iterator[str]:
    """Yield every alternative that one answer gives two different times."""
    times: dict[str, set[str]] = {}
    for text in texts:
        for gain in gains_in(text):
            times.setdefault(gain.name, set()).add(gain.time)
    yield from (f"{name}: {sorted(found)}" for name, found in times.items() if len(found) > 1)


def page_text(source: str) -> str:
    """The text of a report page without scripts, styles and pictures, a line per element."""
    bare = re.sub(r"(?s)<(style|script|svg)\b.*?</\1>", "\n", source)
    return html.unescape(re.sub(r"<[^>]+>", "\n", bare))
