"""Which test files import a module: at first hand, or else through the fewest others."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

LEAST = 3
"""Test files; where fewer import a module, those that import its importers are near too."""


def near(root: Path, file: str) -> list[str]:
    """Return the test files nearest to a file of the product, those of its own room first."""
    wanted, known, found = {_module(file)}, set[str](), list[str]()
    room = f"tests/{_module(file).split('.')[1]}/"
    while wanted and len(found) < LEAST:
        layer = [test for test, names in _imports(root, "tests").items() if names & wanted]
        found += sorted({*layer} - {*found}, key=lambda test: (not test.startswith(room), test))
        known |= wanted
        product = _imports(root, "pipesat", "solver", "heuristics")
        wanted = {_module(f) for f, names in product.items() if names & wanted} - known
    return found


def _module(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "pipesat" else ("pipesat", *parts))


@cache
def _imports(root: Path, *folders: str) -> dict[str, set[str]]:
    """Each file with the modules that it imports, anywhere in it; of tests, those with tests."""
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    files = {str(path.relative_to(root)): path for path in paths}
    return {
        file: {*_named(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))}
        for file, path in files.items()
        if not file.startswith(("pipesat/solver/", "pipesat/heuristics/"))  # links
        and (folders != ("tests",) or path.name.startswith("test_"))
    }


def _named(nodes: Iterable[ast.AST]) -> Iterable[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
