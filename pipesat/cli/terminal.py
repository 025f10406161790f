"""What a terminal shows: consoles, answers, one JSON document."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pipesat.core.showing import Column, Table
from pipesat.core.text_tables import lines_of

if TYPE_CHECKING:
    from rich.console import Console

    from pipesat.core.showing import Displayed, Facts


def console(*, err: bool = False) -> Console:
    """Console for results, or for progress and messages; names are never read as markup."""
    from rich.console import Console  # slow to import

    return Console(stderr=err, markup=False, emoji=False, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()


def print_answer(
    answer: Displayed, more: Facts = (), *, verbose: bool = False, err: bool = False
) -> None:
    """Print an answer: its tables, then its labelled lines; ``verbose`` adds all else."""
    blocks = [*answer.tables(), _facts([*answer.facts(), *more])]
    if answer.answer_first:
        blocks = [blocks[-1], *blocks[:-1]]
    if verbose:
        blocks.append(_facts(answer.details()))
    width = console(err=err).width
    texts = ["\n".join(lines_of(block, width)) for block in blocks if block.lines]
    stream = sys.stderr if err else sys.stdout  # click.echo would ignore its encoding
    stream.write("\n\n".join(texts) + "\n" * bool(texts))
    stream.flush()


def _facts(facts: Facts) -> Table:
    """Labelled lines; those without a text are left out."""
    return Table([Column("", number=False)] * 2, [line for line in facts if line[1]])
