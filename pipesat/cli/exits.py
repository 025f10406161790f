"""Exit codes and the one-line errors that go with them."""

from __future__ import annotations

import os
import sys
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


def end_of_solve(result: Result, interrupted: int) -> NoReturn:
    """End a command that has solved: 3 with the reason if infeasible, else 0 or 128 + signal."""
    if result.status == "infeasible":
        typer.echo(f"pipesat: infeasible: {one_line(result.explanation)}", err=True)
        raise typer.Exit(INFEASIBLE)
    raise typer.Exit(interrupted)


def one_line(text: str) -> str:
    """Keep a message on one line and free of control characters, whatever a file put into it."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
