"""Where a fault is in a source, and the tree with it: by what its place says, not by a line number.

A place is an expression, a slice, a filter or an assignment with ``+=`` that says ``before``; the
fault says ``after`` there. A condition that never holds is an ``if`` without an ``else``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

NEVER = "False"
_SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr)


@dataclass(frozen=True)
class Place:
    """What a fault changes; ``nth`` tells places apart that say the same."""

    kind: str
    function: str
    line: str
    before: str
    after: str
    nth: int = 0


def parsed(text: str, kind: str) -> ast.AST:
    """Return the node that a text of a place is."""
    if text.startswith((" for ", " async for ")):
        return ast.parse(f"[0{text}]", mode="eval").body.generators[0]  # type: ignore[attr-defined]
    if kind == "one off" and ":" in text:
        try:
            return ast.parse(text, mode="eval").body  # a call with a slice in it
        except SyntaxError:
            return ast.parse(f"x[{text}]", mode="eval").body.slice  # type: ignore[attr-defined]
    statement = ast.parse(text).body[0]
    return statement.value if isinstance(statement, ast.Expr) else statement


def places(tree: ast.Module, source: str, wanted: Place) -> list[tuple[Place, ast.AST]]:
    """Return all places of a source that say the same, in the order of its text, with their nodes.

    A node of one line stands for the whole: only those of the wanted kind and text are looked at.
    """
    seen: Counter[str] = Counter()
    found, lines = [], source.splitlines()
    like, never = type(parsed(wanted.before, wanted.kind)), wanted.after == NEVER
    for function, node, tested in _all(tree):
        if not isinstance(node, like) or (never and not tested):
            continue
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            continue
        if ast.unparse(node) == wanted.before:
            first = node.target if isinstance(node, ast.comprehension) else node
            line = lines[first.lineno - 1].strip()  # type: ignore[attr-defined]
            nth = seen[function]
            seen[function] += 1
            place = Place(wanted.kind, function, line, wanted.before, wanted.after, nth)
            found.append((place, node))
    return found


def _all(tree: ast.Module) -> Iterator[tuple[str, ast.AST, bool]]:
    """Every node in a function: the function's name, and whether an ``if`` alone asks it."""

    def walk(node: ast.AST, names: tuple[str, ...], inside: bool, tested: bool) -> Iterator:  # type: ignore[type-arg]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name not in {"__repr__", "__str__"}:
                inside = inside or isinstance(node, ast.FunctionDef)
                for child in node.body:
                    yield from walk(child, (*names, node.name), inside, False)
            return
        if isinstance(node, _SKIPPED):
            return
        if inside:
            yield ".".join(names), node, tested
        alone = isinstance(node, ast.If) and not node.orelse
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and field != "annotation":
                    yield from walk(child, names, inside, alone and field == "test")

    yield from walk(tree, (), False, False)


def faulty(source: str, place: Place) -> ast.Module:
    """Return the tree of a source with one place changed."""
    tree = ast.parse(source)
    change = _Rewriter(_node(tree, source, place), lambda _: parsed(place.after, place.kind))
    return ast.fix_missing_locations(change.visit(tree))


def marked(source: str, numbered: Mapping[int, Place]) -> ast.Module:
    """Return the tree of a source that says ``fault_reached(number)`` wherever a place is met."""
    tree = ast.parse(source)
    nodes = {number: _node(tree, source, place) for number, place in numbered.items()}
    for number, node in nodes.items():
        tree = _Rewriter(node, partial(_telling, number)).visit(tree)
    return ast.fix_missing_locations(tree)


def _node(tree: ast.Module, source: str, place: Place) -> ast.AST:
    (node,) = (node for found, node in places(tree, source, place) if found == place)
    return node


class _Rewriter(ast.NodeTransformer):
    def __init__(self, wanted: ast.AST, change: Callable[[ast.AST], ast.AST]) -> None:
        self.wanted, self.change = wanted, change

    def visit(self, node: ast.AST) -> ast.AST:
        mine = node is self.wanted
        node = self.generic_visit(node)
        return ast.copy_location(self.change(node), node) if mine else node


def _telling(number: int, node: ast.AST) -> ast.AST:
    """A node whose value is asked for only after its number has been told."""
    told = ast.Call(ast.Name("fault_reached", ast.Load()), [ast.Constant(number)], [])

    def after(value: ast.expr | None) -> ast.expr:
        return ast.BoolOp(ast.Or(), [told, value or ast.Constant(None)])

    match node:
        case ast.AugAssign():
            node.value = after(node.value)
        case ast.comprehension():
            node.iter = after(node.iter)
        case ast.Slice():
            node.lower = after(node.lower)
        case _:
            return after(node)
    return node
