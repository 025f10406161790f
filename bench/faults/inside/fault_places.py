"""Where a source could be wrong: every place at which one small change makes a plausible fault.

A place is found again by what it says, not by its line number.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

PARTNERS = [
    *(("F", "B"), ("B", "W"), ("start", "end"), ("begin", "end"), ("first", "last")),
    *(("src", "dst"), ("head", "tail"), ("lower", "upper"), ("before", "after"), ("up", "down")),
    *(("held_after_F", "held_after_B"), ("previous", "next"), ("earlier", "later")),
    *(("forward", "backward"), ("makespan", "span"), ("stage", "microbatch"), ("one", "other")),
    *(("stage", "device"), ("device", "microbatch"), ("left", "right"), ("least", "most")),
    *(("earliest", "latest"), ("smallest", "largest"), ("early", "late"), ("taken", "freed")),
]
"""Names that one may write for each other."""

NUMBERS = {name for pair in PARTNERS for name in pair} | {*"abijkmnpst", "at", "route", "place"}
"""Names of integers, of which a call may get two in the wrong order."""

_ALIKE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_NO_NUMBERS = (ast.List, ast.Tuple, ast.JoinedStr, ast.ListComp, ast.Dict, ast.Set)
_SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr)

Change = Callable[[ast.AST], ast.AST]


@dataclass(frozen=True)
class Place:
    """What a fault changes; ``nth`` tells places apart that say the same."""

    kind: str
    function: str
    line: str
    before: str
    after: str
    nth: int = 0


@dataclass(frozen=True)
class Found:
    """A place in a tree: the node there, and what builds the faulty one from it."""

    place: Place
    node: ast.AST
    change: Change


def places(tree: ast.Module, source: str) -> list[Found]:
    """Return all places of a parsed source, in the order of its text."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    lines = source.splitlines()
    for function, node, kind, change in _all(tree):
        before, after = ast.unparse(_shown(node)), ast.unparse(_shown(change(deepcopy(node))))
        nth = seen[function, before, after]
        seen[function, before, after] += 1
        first = node.target if isinstance(node, ast.comprehension) else _shown(node)
        line = lines[first.lineno - 1].strip()  # type: ignore[attr-defined]
        place = Place(kind, function, line, before, after, nth)
        found.append(Found(place, node, change))
    return found


def faulty(source: str, place: Place) -> ast.Module:
    """Return the tree of a source with one place changed."""
    tree = ast.parse(source)
    (found,) = (found for found in places(tree, source) if found.place == place)
    return ast.fix_missing_locations(_Rewriter(found).visit(tree))


def marked(source: str, numbered: Mapping[int, Place]) -> ast.Module:
    """Return the tree of a source that says ``fault_reached(number)`` wherever a place is met."""
    tree = ast.parse(source)
    by_place = {place: number for number, place in numbered.items()}
    for found in places(tree, source):
        if (number := by_place.get(found.place)) is not None:
            tree = _Rewriter(replace(found, change=partial(_telling, number))).visit(tree)
    return ast.fix_missing_locations(tree)


def _telling(number: int, node: ast.AST) -> ast.AST:
    """A node whose value is asked for only after its number has been told."""
    told = ast.Call(ast.Name("fault_reached", ast.Load()), [ast.Constant(number)], [])

    def after(value: ast.expr | None) -> ast.expr:
        return ast.BoolOp(ast.Or(), [told, value or ast.Constant(None)])

    match node:
        case ast.If():
            node.test = after(node.test)
        case ast.AugAssign():
            node.value = after(node.value)
        case ast.comprehension():
            node.iter = after(node.iter)
        case ast.Slice():
            node.lower = after(node.lower)
        case _:
            return after(node)
    return node


class _Rewriter(ast.NodeTransformer):
    def __init__(self, found: Found) -> None:
        self.found = found

    def visit(self, node: ast.AST) -> ast.AST:
        mine = node is self.found.node
        node = self.generic_visit(node)
        return self.found.change(node) if mine else node


def _shown(node: ast.AST) -> ast.AST:
    """The part of a statement that says what is changed."""
    return node.test if isinstance(node, ast.If) else node


_Yielded = tuple[ast.AST, str, Change]
_Named = tuple[str, ast.AST, str, Change]


def _all(tree: ast.Module) -> Iterator[_Named]:
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}

    def walk(node: ast.AST, names: tuple[str, ...], scope: _Scope | None) -> Iterator[_Named]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name in {"__repr__", "__str__"}:
                return
            names = (*names, node.name)
            if isinstance(node, ast.FunctionDef):
                scope = scope or _Scope(node, attributes)
            for child in node.body:
                yield from walk(child, names, scope)
            return
        if isinstance(node, _SKIPPED):
            return
        if scope is not None:
            for found in _of(node, scope):
                yield (".".join(names), *found)
        for field, child in _children(node):
            if field != "annotation":
                yield from walk(child, names, scope)

    yield from walk(tree, (), None)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


class _Scope:
    """What a change may name: the outermost function's variables, the module's attributes."""

    def __init__(self, function: ast.AST, attributes: set[str]) -> None:
        self.attributes = attributes
        nodes = list(ast.walk(function))
        self.types = {
            node.arg: ast.unparse(node.annotation)
            for node in nodes
            if isinstance(node, ast.arg) and node.annotation
        }
        stored = (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self.names = {*stored, *(n.arg for n in nodes if isinstance(n, ast.arg))}

    def numbers(self, one: ast.expr, other: ast.expr) -> bool:
        """Whether two arguments may be mistaken for each other."""
        if not (isinstance(one, ast.Name) and isinstance(other, ast.Name)) or one.id == other.id:
            return False
        type_ = self.types.get(one.id)
        return {one.id, other.id} <= NUMBERS or (type_ and type_ == self.types.get(other.id))


def _of(node: ast.AST, scope: _Scope) -> Iterator[_Yielded]:
    match node:
        case ast.BinOp():
            yield from _of_sums(node)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield node, "sign", lambda n: n.operand
        case ast.AugAssign(op=ast.Add() | ast.Sub(), value=value):
            if not isinstance(value, _NO_NUMBERS):
                yield node, "sign", _with_sign
        case ast.Compare(ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()]):
            yield node, "boundary", _with_boundary
            yield from _of_constant(node, "comparators")
        case ast.Call():
            yield from _of_call(node, scope)
        case ast.Attribute(ctx=ast.Load()) | ast.Name(ctx=ast.Load()):
            yield from _of_name(node, scope)
        case ast.Slice(lower=ast.Constant()):
            yield node, "one off", _one_more("lower", None)
        case ast.Slice(upper=ast.BinOp() | ast.Constant() | ast.Name() | ast.UnaryOp()):
            yield node, "one off", _one_more("upper", None)
        case _:
            yield from _of_condition(node)


def _of_condition(node: ast.AST) -> Iterator[_Yielded]:
    match node:
        case ast.UnaryOp(op=ast.Not()):
            yield node, "condition", lambda n: n.operand
        case ast.BoolOp(values=values):
            for number in range(len(values)):
                yield node, "condition", _without(number)
        case ast.If(test=test, orelse=[]) if not isinstance(test, ast.Constant):
            yield node, "condition", _never
        case ast.IfExp():
            yield node, "condition", lambda n: n.body
        case ast.comprehension(ifs=[_]):
            yield node, "condition", _unfiltered


# Signs, boundaries, one off


def _of_sums(node: ast.BinOp) -> Iterator[_Yielded]:
    sides = (node.left, node.right)
    text = any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides)
    if text or any(isinstance(side, _NO_NUMBERS) for side in sides):
        return
    if type(node.op) in _SIGNS:
        yield node, "sign", _with_op(_SIGNS[type(node.op)])
    if isinstance(node.op, ast.Sub | ast.FloorDiv):
        yield node, "swapped", _turned
    if isinstance(node.op, ast.Add | ast.Sub | ast.FloorDiv | ast.Mult):
        yield from _of_constant(node, "right")


def _of_constant(node: ast.AST, field: str) -> Iterator[_Yielded]:
    value = getattr(node, field)
    value = value[0] if isinstance(value, list) else value
    if isinstance(value, ast.Constant) and type(value.value) is int:
        yield node, "one off", _one_more(field, None)


def _with_op(op: type[ast.operator]) -> Change:
    return lambda n: ast.BinOp(n.left, op(), n.right)


def _turned(node: ast.AST) -> ast.AST:
    return ast.BinOp(node.right, node.op, node.left)


def _with_sign(node: ast.AST) -> ast.AST:
    return ast.copy_location(ast.AugAssign(node.target, _SIGNS[type(node.op)](), node.value), node)


def _with_boundary(node: ast.AST) -> ast.AST:
    return ast.Compare(node.left, [_ALIKE[type(node.ops[0])]()], node.comparators)


def _one_more(field: str, number: int | None) -> Change:
    """Add 1 to a child; to a constant of 1 in a sum nothing is added: it goes."""

    def change(node: ast.AST) -> ast.AST:
        new, value = deepcopy(node), getattr(node, field)
        if field == "args":
            new.args[number] = _plus_one(value[number])
        elif isinstance(value, list):
            setattr(new, field, [_plus_one(value[0])])
        elif isinstance(new, ast.BinOp) and ast.unparse(value) == "1":
            return new.left
        else:
            setattr(new, field, _plus_one(value))
        return new

    return change


def _plus_one(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Constant):
        return ast.Constant(value.value + 1)
    return ast.BinOp(value, ast.Add(), ast.Constant(1))


# Conditions


def _without(number: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        rest = [value for place, value in enumerate(node.values) if place != number]
        return rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)

    return change


def _never(node: ast.AST) -> ast.AST:
    return ast.copy_location(ast.If(ast.Constant(False), node.body, node.orelse), node)


def _unfiltered(node: ast.AST) -> ast.AST:
    return ast.comprehension(node.target, node.iter, [], node.is_async)


# Calls and names


def _of_call(node: ast.Call, scope: _Scope) -> Iterator[_Yielded]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    starred = any(isinstance(arg, ast.Starred) for arg in node.args)
    if name in {"min", "max"}:
        other = "max" if name == "min" else "min"
        yield node, "swapped", _calling(other)
    if name == "range" and not starred:
        for number in range(min(2, len(node.args))):
            yield node, "one off", _one_more("args", number)
    elif not starred and name not in {"isinstance", "getattr", "hasattr", "cast", "print"}:
        for number in range(len(node.args) - 1):
            if scope.numbers(node.args[number], node.args[number + 1]):
                yield node, "swapped", _arguments_turned(number)


def _of_name(node: ast.Name | ast.Attribute, scope: _Scope) -> Iterator[_Yielded]:
    name = node.id if isinstance(node, ast.Name) else node.attr
    known = scope.names if isinstance(node, ast.Name) else scope.attributes
    for pair in PARTNERS:
        if name in pair:
            other = pair[1 - pair.index(name)]
            if other in known:
                yield node, "swapped", _named(other)


def _named(other: str) -> Change:
    def change(node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Name):
            return ast.Name(other, ast.Load())
        return ast.Attribute(node.value, other, ast.Load())

    return change


def _calling(name: str) -> Change:
    return lambda n: ast.Call(ast.Name(name, ast.Load()), n.args, n.keywords)


def _arguments_turned(number: int) -> Change:
    def change(node: ast.AST) -> ast.AST:
        args = list(node.args)
        args[number], args[number + 1] = args[number + 1], args[number]
        return ast.Call(node.func, args, node.keywords)

    return change
