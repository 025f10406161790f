"""Public functions given what is of no type that they state: one complaint, which names it."""

from __future__ import annotations

import copy
import inspect
import json
import math
import pickle
import re
import sys
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import pipesat
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput, PipesatError
from pipesat.problem.ops import parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.timing import time_order

PROBLEM = Problem.chain(devices=2, microbatches=2, F=1, B=1, W=1)
SCHEDULE = pipesat.schedule_of(PROBLEM, "1f1b")
UNTYPED = ("Any", "bool", "object")

FUNCTIONS = {
    name: value
    for name in pipesat.__all__
    if inspect.isroutine(value := getattr(pipesat, name)) and name != "parse_item"
}
RANGES = {
    name: typing.get_args(value)[0].__name__
    for function in FUNCTIONS.values()
    for name, value in vars(sys.modules[function.__module__]).items()
    if typing.get_origin(value) is typing.Annotated
}
VALID: dict[str, Any] = {
    "problem": PROBLEM,
    "schedule": SCHEDULE,
    "order": SCHEDULE.order,
    "objective": "makespan",
    "microbatches": 2,
    "devices": 2,
    "reference": 2,
    "lengths": [1, 2],
    "microbatch": lambda _: None,
    "loss": lambda _: None,
    "name": "1f1b",
    "paths": ["x"],
    "layers": "no-such.json",
    "timeline": "no-such.json",
    "profile": "no-such.json",
    "document": {},
}


def stated(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Parameters that state a type, each with that."""
    for name, parameter in inspect.signature(function).parameters.items():
        text = re.sub(r"\w+", lambda word: RANGES.get(word[0], word[0]), str(parameter.annotation))
        if (
            parameter.kind is not parameter.VAR_KEYWORD
            and text.split(" ", maxsplit=1)[0] not in UNTYPED
        ):
            yield name, text


def wrong(text: str) -> list[Any]:
    """Values of other types."""
    values: list[Any] = [object()]
    if "str" not in text and "Path" not in text:
        values.append("no such thing")
    if "int" not in text and "float" not in text:
        values += [5, 2.5]
    if "float" in text and "str" not in text:
        values.append(math.nan)
    if text in ("int", "int | None"):
        values += [2.5, True]
    return values


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """What has to be given, of the right types."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return {p.name: VALID.get(p.name, "no-such") for p in needed}


CASES = [
    pytest.param(name, parameter, value, id=f"{name}-{parameter}-{value!s:.14}")
    for name, function in FUNCTIONS.items()
    for parameter, text in stated(function)
    for value in wrong(text)
]


@pytest.mark.parametrize(("name", "parameter", "value"), CASES)
def test_a_wrong_type_is_one_complaint_that_names_the_parameter(
    name: str, parameter: str, value: Any
) -> None:
    function = FUNCTIONS[name]
    given = arguments(function) | ({"layers": []} if name == "profile_model" else {})
    with pytest.raises(BadInput) as caught:
        function(**{**given, parameter: value})
    assert caught.value.where.partition("[")[0] == parameter


NUMBERS = [-1, 0, 10**30, -0.5, math.inf]
QUICK = (
    "advise",
    "compare",
    "frontier",
    "balance",
    "min_memory",
    "plan",
    "risk",
    "solve",
)


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("name", QUICK)
def test_a_number_out_of_range_is_a_complaint_too(name: str, value: float) -> None:
    function = FUNCTIONS[name]
    limit = {"time_limit": 0.01} if "time_limit" in inspect.signature(function).parameters else {}
    for parameter, text in stated(function):
        if "float" in text or ("int" in text and isinstance(value, int)):
            with suppress(PipesatError):
                function(**{**arguments(function), **limit, parameter: value})


def test_numbers_of_other_libraries_are_numbers() -> None:
    @public
    def function(count: int, share: float | Fraction | None = None) -> object:
        return count, share

    assert function(np.int64(3), np.float32(0.5)) == (3, 0.5)
    assert function(3, None) == (3, None)
    with pytest.raises(BadInput, match=r"^share: got 'x', expected a number or None$"):
        function(3, share="x")  # type: ignore[arg-type]


def test_what_annotations_say() -> None:
    @public
    def function(
        names: Sequence[str] = (),
        way: Literal["up", "down"] = "up",
        file: str | Path = "",
        stop: threading.Event | None = None,
    ) -> object:
        return names, way, file, stop

    assert function(["a"], "down", Path("x"), threading.Event())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"names": "abc"}, r"names: got 'abc', expected a list \(each a text\)"),
        ({"names": ["a", 1]}, r"names\[1\]: got 1, expected a text"),
        ({"way": "left"}, "way: got 'left', expected up or down"),
        ({"file": 3}, "file: got 3, expected a text or a path"),
        ({"stop": 3}, "stop: got 3, expected an event or None"),
    ]
    for values, words in cases:
        with pytest.raises(BadInput, match=words):
            function(**values)


def test_what_is_no_op_is_said_as_of_any_text() -> None:
    with pytest.raises(ValueError, match="5 is not an op"):
        parse_item(5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="order"):
        time_order(PROBLEM, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [Problem.chain, Problem.loop, Problem.vee, Problem.two_routes])
@pytest.mark.parametrize("value", [object(), -1, 2.5, math.nan, math.inf, {"a": 1}, [object()]])
def test_what_makes_no_problem_is_bad_input(make: Callable[..., Problem], value: Any) -> None:
    given = {"devices": 2, "microbatches": 4, "F": 1, "B": 1, "W": 1}
    for parameter in inspect.signature(make).parameters:
        with suppress(BadInput):
            make(**given | {parameter: value})
    for required in given:
        with pytest.raises(BadInput, match=required):
            make(**given | {required: None})


# A problem does not change

DOCUMENT: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{}, {"memory": 9}],
    "stages": [{"device": 0, "F": 3, "B": 1, "W": 1}, {"device": 1, "F": 1, "B": 1, "W": 1}],
    "comm": {"default": 2},
    "overlap": {"pairs": [{"ops": ["0F", "0BW"], "time": 4}]},
}


def test_nothing_of_a_problem_can_be_assigned_to() -> None:
    document = copy.deepcopy(DOCUMENT)
    problem = parse_problem(document)
    document["stages"][0]["F"] = 100  # the caller's own, of no concern
    read_only: list[Any] = [problem.links, *problem.chunks_on, *dictionaries(problem.document)]
    assert problem.overlap is not None
    for one in [*read_only, problem.overlap.times]:
        for change in (
            lambda one: one.__setitem__(next(iter(one), 0), 0),
            lambda one: one.update(F=0),
            lambda one: one.clear(),
            lambda one: one.pop(next(iter(one), 0)),
        ):
            with pytest.raises(TypeError, match="a problem does not change"):
                change(one)
    for change in (
        lambda one: one.append(0),
        lambda one: one.sort(),
        lambda one: one.__setitem__(0, 0),
    ):
        with pytest.raises(TypeError, match="a problem does not change"):
            change(problem.document["stages"])
    with pytest.raises(TypeError, match="a problem does not change"):
        problem.document["stages"] += [1]
    assert problem == parse_problem(DOCUMENT)
    assert problem.document == DOCUMENT


def dictionaries(document: Any) -> Iterator[Any]:
    """Yield all dictionaries of a document."""
    inner = document.values() if isinstance(document, dict) else document
    if isinstance(document, dict):
        yield document
    for one in inner if isinstance(document, dict | list) else ():
        yield from dictionaries(one)


def test_a_problems_document_is_a_document_and_its_copy_ones_own() -> None:
    problem = parse_problem(DOCUMENT)
    assert json.loads(json.dumps(problem.document)) == DOCUMENT
    own = copy.deepcopy(problem.document)
    own["stages"][0]["F"] = 7  # type: ignore[index]
    assert parse_problem(own).stages[0].F == 7
    assert copy.deepcopy(problem) is problem
    again = pickle.loads(pickle.dumps(problem))
    assert again == problem
    with pytest.raises(TypeError, match="a problem does not change"):
        again.links[0, 1] = None
