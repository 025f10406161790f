"""Complaints about a problem name the file that it was read from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipesat.core.errors import BadInput, NotApplicable


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in what is raised about the problem that was read from it."""
    try:
        yield
    except NotApplicable as error:
        raise NotApplicable(f"{path}: {error}") from None
    except BadInput as error:
        if error.source or error.where.startswith("-"):
            raise
        raise error.of(str(path)) from None
