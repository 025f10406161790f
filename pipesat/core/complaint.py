"""One complaint of pydantic, the one that explains most, in our words. For any file format.

What would be right is read off the type that the value was to have: its range, its choices, or the
words that it :class:`Says`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipesat.core.errors import BadInput, require
from pipesat.core.strict_json import Path_, path_text

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Says:
    """In an annotation: what would be right, for this value and all within it."""

    text: str


_PLAIN = {
    "string_type": "a string",
    "string_too_short": "a name, not empty",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "bool_type": "true or false",
}


class InFile(NamedTuple):
    """A value of a file: a complaint shows ``null``, ``true`` and ``NaN``, not Python's names."""

    value: object

    def __repr__(self) -> str:
        return (
            repr(self.value) if isinstance(self.value, str) else json.dumps(self.value, default=str)
        )


def unknown_format(document: object, kinds: Iterable[str], source: str) -> BadInput:
    """Say of a document that its format is none of these, or that it has none."""
    names = ", ".join(f'"pipesat.{name}/1"' for name in kinds)
    if isinstance(document, dict) and "format" in document:
        stated = InFile(document["format"])
        return BadInput(f"expected one of {names}", source=source, where="format", value=stated)
    return BadInput(
        f"expected a JSON object with a format, one of {names}",
        source=source,
        value=InFile(document),
    )


def validated(document: object, model: type[ModelT], source: str) -> ModelT:
    """Return a document (what ``json.loads`` returns) as its model."""
    whole = isinstance(document, dict)
    require(whole, "expected a JSON object", source=source, value=InFile(document))
    return validated_at(document, model, (), source)


def validated_at(part: object, model: type[ModelT], path: Path_, source: str = "") -> ModelT:
    """Return the part of a document at ``path`` as its model; complaints have the whole path."""
    try:
        return model.model_validate(part)
    except ValidationError as error:
        raise _complaint(error, model, source, path) from None


def _complaint(
    error: ValidationError, model: type[BaseModel], source: str, below: Path_
) -> BadInput:
    """Say what is wrong where in a document that ``model`` refused.

    A wrong ``format`` explains all other complaints, and so does none unless an unknown key is
    nearly that. An unknown key explains a missing one.
    ``below`` is the path of what was validated, if it is a part of the document.
    """
    found = error.errors(include_url=False)
    first = min(found, key=_weight)
    if first["type"] == "extra_forbidden" and not _near(first["loc"][-1], "format"):
        whole = (one for one in found if (one["loc"], one["type"]) == (("format",), "missing"))
        first = next(whole, first)  # a file of something else
    kind, context = first["type"], first.get("ctx", {})
    path = tuple(step for step in first["loc"] if not str(step).startswith("list["))  # of a union
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
    right = _right(first, model)
    return BadInput(f"expected {right}", source=source, where=where, value=InFile(first["input"]))


def _right(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Say what would be right, by the annotations along the path."""
    kind = problem["type"]
    annotation: list[Any] = [model]
    said: str | None = None
    for step in problem["loc"]:
        annotation = [*_within(annotation, step)]
        said = next((one.text for one in annotation if isinstance(one, Says)), said)
    if said is not None:
        return said
    if kind == "literal_error":
        choices = [c for one in annotation if get_origin(one) is Literal for c in get_args(one)]
        expected = problem.get("ctx", {}).get("expected")
        return json.dumps(choices[0]) if len(choices) == 1 else f"one of {expected}"
    if kind.startswith(("int", "float", "finite", "greater", "less")):
        null = " or null" if NoneType in annotation else ""
        return f"{'an integer' if int in annotation else 'a number'}{_range(annotation)}{null}"
    keys = [key for one in annotation if isinstance(one, type) for key in _keys_of(one)]
    return _PLAIN.get(kind, problem["msg"]) + f" with {', '.join(keys)}" * bool(keys)


def _keys_of(model: type) -> list[str]:
    """Return the keys that an object has to have, or else those that it may have."""
    if not issubclass(model, BaseModel):
        return []
    fields = model.model_fields.items()
    needed = [field.alias or name for name, field in fields if field.is_required()]
    return needed or [field.alias or name for name, field in fields]


def _range(annotation: Sequence[Any]) -> str:
    """Return the range in an annotation as text: `` from 1 to 10^12``."""
    least = next((_figure(one.ge) for one in annotation if isinstance(one, Ge)), "")
    above = next((_figure(one.gt) for one in annotation if isinstance(one, Gt)), "")
    most = next((_figure(one.le) for one in annotation if isinstance(one, Le)), "")
    if least and most:
        return f" from {least} to {most}"
    return f" above {above}" * bool(above) + f" of at most {most}" * bool(most)


def _figure(value: Any) -> str:
    digits = str(int(value)) if value == int(value) else f"{value:g}"
    power = len(digits) - 1
    return f"10^{power}" if power > 4 and digits == f"1{'0' * power}" else digits


def _within(annotation: Sequence[Any], step: int | str) -> Iterator[Any]:
    """Yield all that the type of a value says of one within it: types, ranges, words."""
    for one in annotation:
        inner: tuple[Any, ...] = get_args(one)
        if isinstance(one, type) and issubclass(one, BaseModel):
            fields = {field.alias or name: field for name, field in one.model_fields.items()}
            if found := fields.get(str(step)):
                yield from (*_parts(found.annotation), *found.metadata)
            inner = ()
        elif get_origin(one) is tuple and isinstance(step, int):
            inner = inner[step : step + 1]
        elif get_origin(one) is Literal:
            inner = ()
        for each in inner:
            yield from _parts(each)


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation's type, or each of its types, and what is said of them."""
    if isinstance(annotation, FieldInfo):
        yield from annotation.metadata
    elif get_origin(annotation) in (Annotated, Union, UnionType):
        for one in get_args(annotation):
            yield from _parts(one)
    elif annotation is not None:
        yield annotation


def _weight(problem: ErrorDetails) -> int:
    wrong_format = problem["loc"] == ("format",) and problem["type"] != "missing"
    return 0 if wrong_format else 1 if problem["type"] == "extra_forbidden" else 2


def _near(key: object, known: str) -> bool:
    return bool(difflib.get_close_matches(str(key).lower(), [known]))


def _nearest_key(path: Path_, model: type[BaseModel], missing: Sequence[ErrorDetails]) -> str:
    """Name the key that was meant; where one is missing, none that is there already.

    Of those that are equally near, one that is required and missing comes first.
    """
    annotation: list[Any] = [model]
    for step in path[:-1]:
        annotation = [*_within(annotation, step)]
    models = (one for one in annotation if isinstance(one, type) and issubclass(one, BaseModel))
    fields = next((one.model_fields for one in models), {})
    wanted = [str(one["loc"][-1]) for one in missing]
    there = {*missing[0]["input"]} if missing else set()
    known = {name.lower(): name for name in fields if name not in there}
    given = str(path[-1]).lower()

    def nearness(key: str) -> tuple[float, bool, str]:
        near = difflib.SequenceMatcher(None, key, given).ratio()
        return near, known[key] in wanted, key

    return f"; the nearest known key is {known[max(known, key=nearness)]}" if known else ""
