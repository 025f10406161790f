"""Strict reading: files of bounded size, JSON without surprises, models that take nothing else."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from pipesat.core.atomic import finish
from pipesat.core.errors import BadInput, require, shorten

Path_: TypeAlias = tuple[str | int, ...]

_LONGEST_NAME = 80

LARGEST_FILE: Final = 64 << 20
"""What people write, and what is made from it."""
LARGEST_ORDER: Final = 1 << 28
"""A runtime's order, which has every op of every rank."""
LARGEST_RUN: Final = 1 << 30
"""What an order took, op by op."""


def read_json(path: Path, largest: int = LARGEST_FILE) -> Any:
    """Read one JSON document from a file of at most ``largest`` bytes."""
    source = str(path)
    data = read_bytes(path, largest)
    require(data.strip(), "the file is empty, expected a JSON document", source=source)
    return parse_json(decoded(data, source), source)


def parse_json(text: str, source: str) -> Any:
    """Parse a JSON text; see :func:`read_json`."""
    wrong: list[_Wrong] = []

    def marked(why: str) -> _Wrong:
        wrong.append(_Wrong(why))
        return wrong[-1]

    def integer(digits: str) -> object:
        try:
            return int(digits)
        except ValueError:  # Python's limit on the digits of one integer
            return marked("a number has thousands of digits, expected an integer from 0 to 10^12")

    def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            key = next(key for key, count in counts.items() if count > 1)
            result[key] = marked("this key appears twice in one object")
        return result

    try:
        document = json.loads(text, object_pairs_hook=without_repetition, parse_int=integer)
        found = _first_wrong(document, ()) if wrong or _SURROGATE.search(text) else None
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise BadInput(
            f"not JSON: {what} at line {error.lineno} column {error.colno}", source=source
        ) from None
    except RecursionError:
        raise BadInput("nested too deeply", source=source) from None
    if found is not None:
        raise BadInput(found[1], source=source, where=path_text(found[0]))
    return document


_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")  # most are halves of a pair


class _Wrong(NamedTuple):
    """Stands in a document for what is none, and says why."""

    why: str


def _first_wrong(node: Any, path: Path_) -> tuple[Path_, str] | None:
    """Path of the first value, or key, that is wrong, and why."""
    if isinstance(node, _Wrong):
        return path, node.why
    if isinstance(node, str) and any("\ud800" <= character <= "\udfff" for character in node):
        return path, "a string has a lone surrogate, which is no text"
    steps: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, dict):
        steps = node.items()
    elif isinstance(node, list):
        steps = enumerate(node)
    for step, child in steps:
        for inner in (step, child):
            if found := _first_wrong(inner, (*path, step)):
                return found
    return None


def path_text(path: Path_) -> str:
    """Show the path of a value: ``stages[3].F``."""
    text = ""
    for step in path:
        if isinstance(step, int) or not step.isidentifier() or len(step) > _LONGEST_NAME:
            text += f"[{shorten(step)}]"
        else:
            text += f".{step}" if text else step
    return text


_GZIP: Final = b"\x1f\x8b"
_READ: Final[set[str]] = set()


def read_bytes(path: Path, largest: int, *, packed: bool = False) -> bytes:
    """Return a file's content, of at most ``largest`` bytes; ``packed``: it may be gzip's."""
    source = str(path)
    finish(path.parent)
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
        _READ.add(os.path.realpath(path))
        if packed and data.startswith(_GZIP):
            with gzip.open(io.BytesIO(data)) as unpacked:
                data = unpacked.read(largest + 1)
    except OSError as error:
        folder = isinstance(error, IsADirectoryError)
        why = "a folder, expected a file" if folder else f"cannot read: {error.strerror or error}"
        raise BadInput(why, source=source) from None
    except (EOFError, zlib.error) as error:
        raise BadInput(f"cannot read: {error}", source=source) from None
    except ValueError:
        raise BadInput("cannot read: no file's name has a null byte", source=source) from None
    require(len(data) <= largest, f"larger than the limit of {largest >> 20} MiB", source=source)
    return data


def was_read(path: Path) -> bool:
    """Whether this process has read a file: it is somebody's input, wherever it lies."""
    return os.path.realpath(path) in _READ


def read_text(path: Path, largest: int = LARGEST_FILE) -> str:
    """Return a UTF-8 file's content, of at most ``largest`` bytes."""
    return decoded(read_bytes(path, largest), str(path))


def decoded(data: bytes, source: str) -> str:
    """Return UTF-8 bytes as text."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 text (byte {error.start})", source=source) from None


class StrictModel(BaseModel):
    """No unknown keys, and no value of another type: ``"3"``, ``3.0`` and ``true`` are not 3."""

    model_config = ConfigDict(strict=True, extra="forbid")


MOST = 10**12
MOST_FACTOR = 10**6

Amount = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
FactorOf = Annotated[
    list[Annotated[int, Field(ge=1, le=MOST_FACTOR)]], Field(min_length=2, max_length=2)
]
"""[num, den]."""


MOST_DEVICES: Final = 4096
MOST_STAGES: Final = 16384
MOST_OPS_OF_A_PROBLEM: Final = 4_000_000
