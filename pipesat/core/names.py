"""Names that users type: in any case, with ``-``, ``_`` or nothing between words; else the nearest.

``1F1B`` and ``zb_v`` are schedules, ``torch-titan`` is a runtime, wherever one is asked for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from pipesat.core.errors import BadInput

_ELSEWHERE: Final = {
    "megatron": "Megatron-LM runs orders of its own: pipesat advise finds its settings, and "
    "pipesat export writes them",
}
"""Runtimes that run no order that they are given, and what does more for them."""


def spelled(given: str, known: Iterable[str]) -> str | None:
    """Return the one known name that is meant; ``None`` if there is none, or several."""
    several = [*known]
    if given in several:
        return given
    found = [name for name in several if _plain(name) == _plain(given)]
    return found[0] if len(found) == 1 else None


def hint(given: str, known: Iterable[str]) -> str:
    """Say which known name is nearest; nothing if none is near."""
    plain = {_plain(name): name for name in known}
    if "torchtitan" in plain and (why := _ELSEWHERE.get(_plain(given))):
        return f"; {why}"
    near = difflib.get_close_matches(_plain(given), plain, n=1)
    return f"; the nearest is {plain[near[0]]}" if near else ""


def named(where: str, given: str, known: Iterable[str], also: str = "") -> str:
    """Return the known name that is meant; ``also``: what is right besides.

    Raises
    ------
    BadInput
        Naming all, and the nearest.
    """
    several = [*known]
    if (found := spelled(given, several)) is not None:
        return found
    raise BadInput(
        f"expected one of {', '.join(several)}{also}{hint(given, several)}",
        where=where,
        value=given,
    )


def _plain(name: str) -> str:
    return re.sub("[-_ .]", "", name).casefold()
