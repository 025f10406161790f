"""Copies of a problem, or of a document, that say something else: all the rest stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pipesat.core.problem import Problem
from pipesat.files.problem_file import parse_problem

Document: TypeAlias = dict[str, Any]
Entry: TypeAlias = Mapping[str, Any]


def changed_problem(
    problem: Problem,
    source: str = "",
    *,
    devices: Sequence[Entry] = (),
    stages: Sequence[Entry] = (),
    **keys: Any,
) -> Problem:
    """Return a copy of a problem; see :func:`changed_document`.

    Raises
    ------
    BadInput
        As for a problem file, naming ``source`` or the problem.
    """
    document = changed_document(problem.document, devices=devices, stages=stages, **keys)
    return parse_problem(document, source or problem.name or "problem")


def changed_document(
    document: Entry, *, devices: Sequence[Entry] = (), stages: Sequence[Entry] = (), **keys: Any
) -> Document:
    """Return a copy of a problem's document.

    Parameters
    ----------
    devices, stages
        What each of them says from now on, all else stays; empty: nothing else.
    keys
        What the document says from now on. Here and there, ``None`` leaves a key out.
    """
    for name, entries in (("devices", devices), ("stages", stages)):
        if entries:
            each = zip(document[name], entries, strict=True)
            keys[name] = [_with(entry, own) for entry, own in each]
    return _with(document, keys)


def _with(entry: Entry, own: Entry) -> Document:
    kept = {key: value for key, value in entry.items() if own.get(key, value) is not None}
    return kept | {key: value for key, value in own.items() if value is not None}
