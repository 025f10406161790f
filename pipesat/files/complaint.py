"""One complaint of pydantic, the one that explains most, in our words. For any file format."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipesat.core.errors import BadInput
from pipesat.files.strict_json import path_text

_WANTED = {
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "bool_type": "true or false",
}


ModelT = TypeVar("ModelT", bound=BaseModel)
Wanted: TypeAlias = Callable[[tuple[int | str, ...], str, dict[str, Any]], str | None]
"""(path, kind of complaint, its context) -> what would be right, or ``None`` for our own words."""


def validated(
    document: object, model: type[ModelT], source: str, wanted: Wanted = lambda *_: None
) -> ModelT:
    """Return a document (what ``json.loads`` returns) as its model.

    Raises
    ------
    BadInput
        With ``source`` (the file), the path of the value, the value and what would be right.
    """
    if not isinstance(document, dict):
        raise BadInput("expected a JSON object", source=source, value=document)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise complaint(error, model, source, wanted) from None


def validated_at(
    part: object,
    model: type[ModelT],
    path: tuple[str | int, ...],
    wanted: Wanted = lambda *_: None,
    source: str = "",
) -> ModelT:
    """Return the part of a document at ``path`` as its model.

    Raises
    ------
    BadInput
        As :func:`validated`, with the path in the whole document.
    """
    try:
        return model.model_validate(part)
    except ValidationError as error:
        raise complaint(error, model, source, wanted, path) from None


def complaint(
    error: ValidationError,
    model: type[BaseModel],
    source: str,
    wanted: Wanted = lambda *_: None,
    below: tuple[str | int, ...] = (),
) -> BadInput:
    """Say what is wrong where in a document that ``model`` refused.

    A wrong ``format`` explains all other complaints, an unknown key explains a missing one.
    ``below`` is the path of what was validated, if it is a part of the document.
    """
    found = error.errors(include_url=False)
    first = min(found, key=_weight)
    path, kind, context = first["loc"], first["type"], first.get("ctx", {})
    where = path_text((*below, *path))
    if kind == "extra_forbidden":
        beside = [one for one in found if one["loc"][:-1] == path[:-1] and one["type"] == "missing"]
        nearest = _nearest_key(path, model, beside)
        return BadInput("unknown key" + nearest, source=source, where=where)
    if kind == "missing":
        what = "key" if isinstance(path[-1], str) else "entry"  # of a list of a fixed length
        return BadInput(f"this {what} is required and missing", source=source, where=where)
    if kind in ("too_short", "too_long"):
        least, most = context.get("min_length"), context.get("max_length")
        bound = f"at least {least}" if kind == "too_short" else f"at most {most}"
        count = context["actual_length"]
        return BadInput(f"{count} entries, expected {bound}", source=source, where=where)
    right = wanted(path, kind, context) or _in_our_words(first)
    return BadInput("expected " + right, source=source, where=where, value=first["input"])


def _in_our_words(problem: ErrorDetails) -> str:
    kind = problem["type"]
    if kind == "literal_error":
        return f"{problem.get('ctx', {}).get('expected')}"
    if kind.startswith("int"):
        return "a whole number"
    if kind.startswith(("float", "finite")):
        return "a finite number"
    if kind.startswith(("greater", "less")):
        return problem["msg"].removeprefix("Input should be ")
    return _WANTED.get(kind, problem["msg"])


def _weight(problem: ErrorDetails) -> int:
    wrong_format = problem["loc"] == ("format",) and problem["type"] != "missing"
    return 0 if wrong_format else 1 if problem["type"] == "extra_forbidden" else 2


def _nearest_key(
    path: tuple[int | str, ...], model: Any, missing: Sequence[ErrorDetails] = ()
) -> str:
    """Name the key that was meant; where one is missing, none that is there already.

    Of those that are equally near, one that is required and missing comes first.
    """
    for step in path[:-1]:
        if isinstance(step, str) and model is not None and step in model.model_fields:
            model = _model_within(model.model_fields[step].annotation)
    if model is None:
        return ""
    wanted = [str(one["loc"][-1]) for one in missing]
    there = {*missing[0]["input"]} if missing else set()
    known = {x.lower(): x for x in model.model_fields if x not in there}
    given = str(path[-1]).lower()

    def nearness(key: str) -> tuple[float, bool, str]:
        near = difflib.SequenceMatcher(None, key, given).ratio()
        return near, known[key] in wanted, key

    return f"; the nearest known key is {known[max(known, key=nearness)]}" if known else ""


def _model_within(annotation: Any) -> Any:
    """Return the model class inside ``list[Model]``, ``Model | None`` and so on."""
    if isinstance(annotation, type) and not isinstance(annotation, GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    return next(filter(None, map(_model_within, get_args(annotation))), None)
