"""Exit codes and the one-line errors that go with them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from pipesat.errors import (
    BadInput,
    Contradiction,
    Deadlock,
    Fault,
    Infeasible,
    NotApplicable,
    PipesatError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pipesat.result import Result

CHECK_FAILED = 1
BAD_INPUT = 2
INFEASIBLE = 3

_CODES: dict[type[PipesatError], int] = {
    BadInput: BAD_INPUT,
    NotApplicable: BAD_INPUT,
    Deadlock: CHECK_FAILED,
    Infeasible: INFEASIBLE,
}


def exit_code_of(error: Exception) -> int | None:
    """Print an error that users can act on and return its exit code; ``None`` for a bug."""
    if isinstance(error, OSError):  # files raise BadInput, so this is stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader of our output has left: `| head`
            return CHECK_FAILED
        error = BadInput(f"cannot write: {error.strerror or error}", source="standard output")
    if isinstance(error, Fault):
        print_fault(error)
        return CHECK_FAILED
    code = _CODES.get(type(error)) if isinstance(error, PipesatError) else None
    if code is not None:
        print(f"pipesat: error: {one_line(str(error))}", file=sys.stderr)  # noqa: T201
    return code


def print_fault(error: Fault) -> None:
    """Say that pipesat contradicts itself, and where the files are."""
    kept = error.kept if isinstance(error, Contradiction) else ""
    where = f"; what was found is in {kept}" if kept else ""
    text = one_line(f"pipesat: internal error, please report it: {error}{where}")
    print(text, file=sys.stderr)  # noqa: T201


@contextlib.contextmanager
def keeping(folder: Path | None) -> Iterator[None]:
    """Let a contradiction say that files are in a folder: what was found is written by now."""
    try:
        yield
    except Contradiction as error:
        if folder is not None and not error.kept:
            error.kept = str(folder)
        raise


def refuse_contradictions(found: Sequence[str], folder: Path | None) -> None:
    """End with 1 if checked schedules have refuted proofs, which were dropped."""
    if found:
        raise Contradiction("; ".join(found), "" if folder is None else str(folder))


def end_of_solve(results: Sequence[Result], interrupted: int, folder: Path | None) -> NoReturn:
    """End a command that has solved and written its files into a folder.

    1 if a proof was refuted, 3 with the reason if the first is infeasible, else 0 or 128 + signal.
    """
    refuse_contradictions([text for r in results for text in r.contradictions], folder)
    if results[0].status == "infeasible":
        typer.echo(f"pipesat: infeasible: {one_line(results[0].explanation)}", err=True)
        raise typer.Exit(INFEASIBLE)
    raise typer.Exit(interrupted)


def one_line(text: str) -> str:
    """Keep a message on one line and free of control characters, whatever a file put into it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
