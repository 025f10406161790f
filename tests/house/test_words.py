"""The rules of CONTRIBUTING.md for words, as far as a test can hold them."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import pytest

import pipesat
from pipesat.cli.app import app
from tests.support.paths import ROOT
from tests.support.prose import rendered, sentences, without_code, words

PAGES = [
    *("README.md", "CONTRIBUTING.md"),
    *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]
LONGEST = 35
BANNED = {
    r"levers?|rivals?|peers?": "mode, alternative, hand-written schedule",
    r"vees?": "V",
    r"(?:two|opposite) (?:opposite )?(?:routes|ways)": "bidirectional",
    r"rooms?": "package, or memory left",
    r"nobody|whoever": "who does what",
}
LINKED = ("makespan", "span", "gap", "bubble", "warm-up", "chunk", "pair", "mode", "class")


def commands(command: Any, name: str = "pipesat") -> Iterator[tuple[str, str]]:
    """Every command with the texts of its help."""
    # indented, as before Python 3.13 docstrings are below their first line, it would count as code
    helps = [
        inspect.cleandoc(command.help or ""),
        *(getattr(p, "help", None) or "" for p in command.params),
    ]
    yield name, "\n\n".join(helps)
    for sub in getattr(command, "commands", {}):
        yield from commands(command.get_command(click.Context(command), sub), f"{name} {sub}")


def text_of(node: ast.expr) -> str:
    """What a literal says; what is put in counts as one word, and is no sentence's end."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "X"


def messages() -> Iterator[str]:
    """What every error of the package says."""
    for folder in ("pipesat", "solver", "heuristics"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                    yield from map(text_of, node.exc.args)


TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
HELPS = dict(commands(app))
NAMES = [*TEXTS, *HELPS, "messages"]


@cache
def text_by(name: str) -> str:
    if name == "messages":
        return "\n\n".join(messages()).replace("(0F2;7B0)", "")
    return (TEXTS | HELPS)[name]


@pytest.mark.parametrize("name", NAMES)
def test_sentences_are_short_and_have_no_semicolons(name: str) -> None:
    said = list(sentences(text_by(name)))
    assert [s for s in said if len(s.split()) > LONGEST] == []
    assert [s for s in said if re.match(r"\W*(Of|Where)\b(?!.*\?)[^:]*,", s)] == []  # rule 2
    prose = [line for line in without_code(text_by(name)).splitlines() if "|" not in line]
    assert [line for line in prose if ";" in re.sub("`[^`]*`|&[a-z]+;", "", line)] == []


@pytest.mark.parametrize("name", NAMES)
def test_one_word_for_one_thing(name: str) -> None:
    text = re.sub(r"`[^`]*`|loop(?:,| or) vee", "", without_code(text_by(name)))
    text = rendered(text)
    used = {w.lower() for banned in BANNED for w in re.findall(rf"\b(?:{banned})\b", text, re.I)}
    assert used == set(), BANNED


def test_code_has_the_words_of_the_pages() -> None:
    """Names, comments, docstrings; a file calls a placement ``vee``, what memory buys ``lever``."""
    banned = re.compile(
        r"(?<![A-Za-z])(rooms?|vees?|levers?|rivals?|nobody|whoever)(?![A-Za-z])", re.I
    )
    stated = re.compile(
        r"""["'`:.](vee|levers?)\b|def vee|loop(?:, .*)? or ``vee``|vee: two|, vee\b|vee/"""
    )
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("pipesat", "solver", "heuristics")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if banned.search(stated.sub("", line))
    }
    assert found == set()


@pytest.mark.parametrize("page", PAGES)
def test_the_first_use_of_a_word_links_to_the_glossary(page: str) -> None:
    if page == "CONTRIBUTING.md":
        return
    text = TEXTS[page].partition("## Glossary")[0]
    prose = "\n".join(
        line for line in without_code(text).splitlines() if not line.startswith(("#", "|"))
    )
    words = "|".join(LINKED)
    prose = re.sub(rf"`[^`]*`|!\[[^\]]*\]|\]\((?![\w/.]*#(?:{words})\))[^)]*\)", "", prose)
    for word in LINKED:
        first = re.search(rf"(?<!zero )\b{word}(?:s|es)?\b", prose, re.IGNORECASE)
        link = re.search(rf"\[{word}(?:s|es)?\]\((?:[\w/]*files\.md)?#{word}\)", prose, re.I)
        assert first is None or (link is not None and link.start() < first.start()), word


def test_the_rules_would_be_seen_to_break() -> None:
    text = (
        "# A head\n\n"
        + "word " * 36
        + "end. Next `a; b` one. Last\n\n| a cell | b |\n\n```\ncode\n```\n"
    )
    assert [len(s.split()) for s in sentences(text)] == [2, 37, 3, 1, 2, 1]
    assert words(text) == 2 + 37 + 4 + 1 + 3


def test_pages_agree_with_the_product_and_with_each_other() -> None:
    ours = [name for name, made in pipesat.baselines().items() if made.source == "pipesat"]
    page = (ROOT / "docs" / "schedules.md").read_text()
    every = len(pipesat.baselines())
    assert f"{every - len(ours)} of the {every} are published, {len(ours)} are our own" in page
    told = "".join(TEXTS.values())
    assert re.findall(r"pip install .?pipesat\b", told) == []  # it is on no index
    hero = re.findall(r"([\d.]+) % shorter than", TEXTS["README.md"])[:2]  # picture, output
    assert hero[0] == hero[1]


def test_pages_and_proofs_are_no_longer_than_they_may_be() -> None:
    pages = sum(words(text) for page, text in TEXTS.items() if page != "CONTRIBUTING.md")
    assert pages <= 20_500
    assert sum(words(p.read_text()) for p in (ROOT / "docs" / "proofs").glob("*.md")) <= 15_000


def test_the_readme_is_short() -> None:
    assert words((ROOT / "README.md").read_text()) <= 600
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    assert all(block.count("\n") <= 25 for block in blocks)


def test_figures_are_those_of_the_experiments() -> None:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "scripts" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    figures: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    assert [p.name for p in figures.PAGES if figures.filled(p.read_text()) != p.read_text()] == []
    assert figures.filled("<!-- begin kinds -->\n<!-- end -->").count("\n") == 8
