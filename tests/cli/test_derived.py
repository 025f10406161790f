"""Commands made from functions: what annotations and docstrings say is what users get."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import pytest

import pipesat
from pipesat.cli.app import app
from pipesat.cli.derived import grouped, parameters
from pipesat.compare.from_profile import problem_from_profile
from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.core.settings import Seconds, Workers
from pipesat.problem.problem import Problem
from tests.support.problems import chain


@public
def bake(
    problem: Problem,
    devices: Workers,
    *,
    time_limit: Seconds = 2.5,
    shapes: Sequence[int] = (),
    layouts: Sequence[str] = (),
    memory: int | str | Sequence[int | str] | None = None,
    size: Literal["small", "large"] = "small",
    twice: bool = True,
    workers: Workers | None = None,
) -> None:
    """Bake.

    Parameters
    ----------
    problem
        What is baked.
    devices, time_limit
        How many. And for ``how`` long.
    shapes
        With ``twice``: shapes.
    layouts
        Lays of it; ``None``: anyhow.
    memory
        How much of it.
    size
        Which.
    twice
        Whether twice.
    """


def asked(*words: str) -> dict[str, Any]:
    command = click.Command("bake", params=parameters(bake, {"size": "--for"}))
    return command.make_context("bake", ["p.json", "--devices", "2", *words]).params


def test_types_defaults_and_names_are_the_functions() -> None:
    assert asked() == {
        "problem": Path("p.json"),
        "devices": 2,
        "time_limit": 2.5,
        "shapes": [],
        "layouts": [],
        "memory": [],
        "size": "small",
        "twice": True,
        "workers": None,
    }
    given = asked("--for", "large", "--no-twice", "--time-limit", "10.0", "--workers", "3")
    assert (given["size"], given["twice"], given["time_limit"]) == ("large", False, 10.0)
    assert given["workers"] == 3


def test_lists_are_separated_by_commas_or_repeated_and_texts_repeated_alone() -> None:
    assert asked("--shapes", "1,2", "--shapes", "3")["shapes"] == [1, 2, 3]
    assert asked("--layout", "a,b", "--layout", "c")["layouts"] == ["a,b", "c"]
    assert asked("--memory", "40GiB,7")["memory"] == ["40GiB", "7"]
    assert asked("--memory", "7")["memory"] == "7"  # one for all


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "1025"], "--workers: got '1025', expected an integer from 1 to 1024"),
        (["--workers", "x"], "--workers: got 'x', expected an integer from 1 to 1024"),
        (["--time-limit", "nan"], "--time-limit: got 'nan', expected a number above 0"),
        (["--shapes", "1,,2"], "--shapes: got '1,,2', expected an integer, or several, separated"),
    ],
)
def test_what_the_function_would_refuse_is_refused_by_the_options_name(
    words: list[str], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        asked(*words)
    assert message in str(caught.value)


def test_python_users_meet_the_same_ranges() -> None:
    with pytest.raises(BadInput, match="workers: got 1025, expected an integer from 1 to 1024"):
        bake(chain(1, 1), 1, workers=1025)


def following(*words: str) -> dict[str, Any]:
    """What a command gets whose --memory is followed by workers, twice and layouts."""
    params = grouped(parameters(bake, {}), {"memory": ("workers", "twice", "layouts")})
    command = click.Command("bake", params=params)
    found = command.make_context("bake", ["p.json", "--devices", "2", *words]).params
    return {name: found[name] for name in ("memory", "workers", "twice", "layouts")}


@pytest.mark.parametrize(
    ("words", "memory", "workers", "twice", "layouts"),
    [
        ((), [], None, True, []),
        (("40GiB,7",), ["40GiB", "7"], None, True, []),
        (("40GiB,workers=3",), "40GiB", 3, True, []),
        (("workers=3",), [], 3, True, []),
        (("40GiB", "twice=no,workers=4"), "40GiB", 4, False, []),
        (("7,layouts=a,b,twice", "layouts=c"), "7", None, True, ["a,b", "c"]),
    ],
)
def test_options_that_follow_the_value_of_another(
    words: tuple[str, ...], memory: Any, workers: Any, twice: bool, layouts: list[str]
) -> None:
    given = [word for text in words for word in ("--memory", text)]
    expected = {"memory": memory, "workers": workers, "twice": twice, "layouts": layouts}
    assert following(*given) == expected


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("7,workers=x", "--memory workers: got 'x', expected an integer from 1 to 1024"),
        ("7,workers", "--memory workers: got '', expected an integer"),
    ],
)
def test_what_follows_is_refused_by_the_name_of_both(word: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        following("--memory", word)
    assert message in str(caught.value)


def test_help_is_the_first_sentence_with_options_for_parameters() -> None:
    texts = {one.name: one.help for one in parameters(bake, {"size": "--for"})}
    assert texts["devices"] == "How many."
    assert texts["time_limit"] == "How many.  [default: 2.5]"
    assert texts["shapes"] == "With --twice: shapes."
    assert texts["layouts"] == "Lays of it.  [default: anyhow]"
    lanes = "Lanes of the search, the first in this process, each other one in its own."
    assert texts["workers"] == f"{lanes}  [default: the cores it may use]"


def test_a_default_with_a_point_is_shown_whole() -> None:
    (limit,) = (one for one in parameters(problem_from_profile, {}) if one.name == "split_limit")
    assert (limit.help or "").endswith("auto.  [default: 1.5]")


def test_shared_entries_are_in_the_functions_help() -> None:
    text = pipesat.solve.__doc__ or ""
    assert text.count("workers\n    Lanes of the search") == 1
    assert text.index("workers\n") < text.index("\n\nRaises\n------\n")


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name in group.commands:
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = {"pipesat": app, **dict(commands(app, "pipesat"))}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(name: str) -> None:
    text = COMMANDS[name].get_help(
        click.Context(COMMANDS[name], info_name=name, max_content_width=80)
    )
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"<(?!=)|\{|\N{NON-BREAKING HYPHEN}|:class:|``", text)


def test_no_help_loads_what_only_answers_need() -> None:
    """Of all commands' options in one process: help stays under 0.3 s of a processor."""
    code = (
        "import sys; from pipesat.cli.app import app\n"
        "left = [app]\n"
        "while left:\n"
        "    one = left.pop(); one.params\n"
        "    left += [one.get_command(None, name) for name in getattr(one, 'commands', ())]\n"
        "print({'numpy', 'ortools', 'matplotlib', 'networkx', 'torch'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
