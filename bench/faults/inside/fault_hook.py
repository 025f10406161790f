"""Modules with a fault, made while they are imported; files stay as they are.

The environment's ``FAULTS`` is a JSON document: the path of each file with the place of its fault.
With ``FAULTS_REACHED``, a file, it has several places by number for each: nothing is changed, and
the file gets a line for every place that a test meets.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from importlib.machinery import SourceFileLoader
from typing import Any


def install() -> None:
    """Let the import of the files with faults go through here."""
    faults = json.loads(os.environ["FAULTS"])
    original = SourceFileLoader.get_code
    reached = os.environ.get("FAULTS_REACHED")
    if reached is not None:
        builtins.fault_reached = _Reached(reached)  # type: ignore[attr-defined]

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        path = loader.get_filename(fullname)
        if (place := faults.get(os.path.realpath(path))) is None:
            return original(loader, fullname)
        from fault_places import Place, faulty, marked

        source = loader.get_data(path).decode()
        if reached is None:
            tree = faulty(source, Place(**place))
        elif "/pipesat/kernels/" in path:
            told = f"\nimport fault_hook\nfault_hook.tell(globals(), {[*place]})"
            tree = ast.parse(source + told)
        else:
            tree = marked(source, {int(number): Place(**one) for number, one in place.items()})
        return compile(tree, path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code


def tell(module: dict[str, Any], numbers: list[str]) -> None:
    """Let the compiled loops of a module tell numbers when they are called."""
    from pipesat.kernels.compiled import Compiled

    class Told(Compiled):
        def __call__(self, *arguments: Any) -> Any:
            for number in numbers:
                builtins.fault_reached(int(number))  # type: ignore[attr-defined]
            return super().__call__(*arguments)

    for loop in [one for one in module.values() if type(one) is Compiled]:
        loop.__class__ = Told


class _Reached:
    """Note in a file which test meets which place: the first time in each process."""

    def __init__(self, file: str) -> None:
        self.file, self.known = file, set[tuple[int, str]]()

    def __call__(self, number: int) -> None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        key = (number, os.environ.get("FAULTS_FILE") or test)
        if key not in self.known:
            self.known.add(key)
            with open(self.file, "a", encoding="utf-8") as file:
                file.write(f"{number} {key[1]}\n")
