"""JSON as the contract wants it: UTF-8, no duplicate keys, clear errors, a size limit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipesat.errors import BadInput


def read_json(path: Path, largest: int) -> Any:
    """Read one JSON document from a file of at most ``largest`` bytes.

    Raises
    ------
    BadInput
        If the file cannot be read, is too large, is not UTF-8, is not JSON or repeats a key.
    """
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror or error}", source=source) from None
    if len(data) > largest:
        raise BadInput(f"larger than the limit of {largest >> 20} MiB", source=source)
    if not data.strip():
        raise BadInput("the file is empty, expected a JSON document", source=source)
    try:
        return parse_json(data.decode("utf-8"), source)
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 text (byte {error.start})", source=source) from None


def parse_json(text: str, source: str) -> Any:
    """Parse a JSON text; see :func:`read_json`."""
    repeated: list[_Object] = []

    def keep_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = _Object(pairs)
        if len(result) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            result.repeated_key = next(key for key, count in counts.items() if count > 1)
            repeated.append(result)
        return result

    try:
        document = json.loads(text, object_pairs_hook=keep_object)
        text.encode()  # a lone surrogate could neither be digested nor written again
        json.dumps(document, ensure_ascii=False).encode()
        where = _path_of_repeated(document, repeated[-1]) if repeated else ""
    except json.JSONDecodeError as error:
        raise BadInput(
            f"not JSON: {error.msg} at line {error.lineno} column {error.colno}", source=source
        ) from None
    except RecursionError:
        raise BadInput("nested too deeply", source=source) from None
    except UnicodeEncodeError:
        raise BadInput("a string has a lone surrogate, which is no text", source=source) from None
    except ValueError:  # Python's limit on the digits of one integer
        raise BadInput(
            "a number has thousands of digits, expected an integer from 0 to 10^12", source=source
        ) from None
    if repeated:
        raise BadInput("this key stands twice in one object", source=source, where=where)
    return document


def path_text(path: tuple[str | int, ...]) -> str:
    """Show the path of a value: ``stages[3].F``."""
    text = ""
    for step in path:
        if isinstance(step, int) or not step.isidentifier():
            text += f"[{step!r}]"
        else:
            text += f".{step}" if text else step
    return text


class _Object(dict[str, Any]):
    """A JSON object that remembers which key stood in it twice."""

    repeated_key = ""


def _path_of_repeated(document: Any, last: _Object) -> str:
    """Path of a repeated key in the last such object, whose parents are all in the document."""
    return path_text((*(_find(document, last) or ()), last.repeated_key))


def _find(node: Any, target: _Object) -> tuple[str | int, ...] | None:
    """Path from ``node`` to the very object ``target``."""
    if node is target:
        return ()
    steps: list[tuple[str | int, Any]] = []
    if isinstance(node, dict):
        steps = list(node.items())
    elif isinstance(node, list):
        steps = list(enumerate(node))
    for step, child in steps:
        below = _find(child, target)
        if below is not None:
            return (step, *below)
    return None
