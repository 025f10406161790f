"""The bytes of a file that a user named: whatever keeps them from being read is bad input."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import Final

from pipesat.core.errors import BadInput
from pipesat.files.atomic import finish

_GZIP: Final = b"\x1f\x8b"
_READ: Final[set[str]] = set()


def read_bytes(path: Path, largest: int, *, packed: bool = False) -> bytes:
    """Return a file's content, of at most ``largest`` bytes; ``packed``: it may be gzip's.

    Raises
    ------
    BadInput
        If it cannot be read, or is larger.
    """
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
        raise BadInput(f"cannot read: {error.strerror or error}", source=source) from None
    except (EOFError, zlib.error) as error:
        raise BadInput(f"cannot read: {error}", source=source) from None
    except ValueError:
        raise BadInput("cannot read: no file's name has a null byte", source=source) from None
    if len(data) > largest:
        raise BadInput(f"larger than the limit of {largest >> 20} MiB", source=source)
    return data


def was_read(path: Path) -> bool:
    """Whether this process has read a file: it is somebody's input, wherever it lies."""
    return os.path.realpath(path) in _READ


def read_text(path: Path, largest: int) -> str:
    """Return a UTF-8 file's content, of at most ``largest`` bytes.

    Raises
    ------
    BadInput
        As :func:`read_bytes`, or if it is not UTF-8.
    """
    return decoded(read_bytes(path, largest), str(path))


def decoded(data: bytes, source: str) -> str:
    """Return UTF-8 bytes as text.

    Raises
    ------
    BadInput
        If they are not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 text (byte {error.start})", source=source) from None
