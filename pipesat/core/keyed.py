"""Several settings in one text, as ``width=64,blocks=2,3``: a value may have commas itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pipesat.core.errors import BadInput

Keys: TypeAlias = Mapping[str, type | tuple[str, ...]]
"""What each key takes: ``int``, ``list`` of them (one number for all, or several), or one of."""
MOST: Final = 1 << 20
_NUMBER: Final = re.compile(r"[0-9]{1,7}")


def keyed(where: str, given: str | Mapping[str, Any] | None, keys: Keys) -> dict[str, Any]:
    """Return settings by key, from a text or from what Python has; ``None``: none of them.

    Raises
    ------
    BadInput
        Naming the key, and what it takes.
    """
    if given is None:
        return {}
    pairs = _pairs(where, given) if isinstance(given, str) else [*given.items()]
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key not in keys or key in found:
            once = "once each" if key in found else f"not {key}"
            raise BadInput(
                f"expected KEY=VALUE of {', '.join(keys)}, {once}", where=where, value=given
            )
        found[key] = _value(where, key, value, keys[key])
    return found


def _pairs(where: str, text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for word in text.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if equals:
            pairs.append((key.replace("-", "_"), value))
        elif pairs:
            pairs[-1] = pairs[-1][0], f"{pairs[-1][1]},{key}"
        else:
            raise BadInput("expected KEY=VALUE, as width=64", where=where, value=text)
    return pairs


def _value(where: str, key: str, given: Any, wanted: type | tuple[str, ...]) -> Any:
    several = isinstance(given, list | tuple)
    words = [str(one) for one in given] if several else str(given).split(",")
    if isinstance(wanted, tuple):
        if given in wanted:
            return given
        raise BadInput(f"expected {key} to be one of {', '.join(wanted)}", where=where, value=given)
    good = all(_NUMBER.fullmatch(word) and int(word) <= MOST for word in words)
    least = 1 if wanted is int else 0  # of a list, one stage may have none
    if not good or (wanted is int and len(words) > 1) or min(map(int, words)) < least:
        count = "a whole number" if wanted is int else "whole numbers, one or several,"
        text = f"expected {key} to be {count} from {least} to {MOST}"
        raise BadInput(text, where=where, value=given)
    return int(words[0]) if wanted is int else tuple(map(int, words))
