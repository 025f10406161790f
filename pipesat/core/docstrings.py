"""Entries of a docstring's section on parameters, as numpydoc has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from pipesat.core.settings import SHARED

_HEAD = "Parameters\n----------\n"


def entries_of(text: str | None) -> dict[str, str]:
    """Return what a docstring says of each parameter; an entry may name several."""
    _, _, rest = inspect.cleandoc(text or "").partition(_HEAD)
    section = re.split(r"\n\n(?=\S[^\n]*\n-+\n)", rest)[0]
    found: dict[str, str] = {}
    for names, said in re.findall(r"^(\S.*)\n((?:[ \n].*\n?)+)", section, re.MULTILINE):
        found |= dict.fromkeys(names.split(", "), " ".join(said.split()))
    return found


def with_shared(text: str | None, names: Iterable[str]) -> str | None:
    """Return a docstring with those entries of :data:`SHARED` that it leaves out."""
    if text is None or _HEAD not in (clean := inspect.cleandoc(text)):
        return text
    said = entries_of(clean)
    added = [f"{name}\n    {SHARED[name]}" for name in names if name in SHARED.keys() - said]
    head, _, rest = clean.partition(_HEAD)
    section, *more = re.split(r"\n\n(?=\S[^\n]*\n-+\n)", rest, maxsplit=1)
    return head + _HEAD + "\n".join([section, *added]) + "".join(f"\n\n{one}" for one in more)
