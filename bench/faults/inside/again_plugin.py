"""A pytest plugin: every fault meets the test that caught it last, each in a fork of this process.

All is imported once, without a fault. A fork gives the functions of its fault's place their code
with the fault, runs the test, and ends; what the test starts gets the fault as it is imported.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from fault_places import Place, faulty

ASKED, TOLD = Path(os.environ["FAULTS_AGAIN"]), Path(os.environ["FAULTS_TOLD"])
LONGEST = 600
"""Seconds after which a test that a fault hangs is ended."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Note the number of every fault that its test catches."""
    gc.unfreeze()  # else no function is found
    for asked in json.loads(ASKED.read_text(encoding="utf-8")):
        items = [item for item in session.items if item.nodeid == asked["by"]]
        if items and _fails(items, asked) and not _fails(items, None):
            with TOLD.open("a", encoding="utf-8") as file:
                file.write(f"{asked['number']}\n")
    return True


def _fails(items: Sequence[pytest.Item], asked: dict[str, Any] | None) -> bool:
    """Whether a test fails in a fork, with a fault or without, or ends it."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            os.setsid()
            signal.alarm(LONGEST)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if asked is not None:
                os.environ["FAULTS"] = json.dumps({asked["file"]: asked["place"]})
                _set(asked["file"], Place(**asked["place"]))
            code = _run(items)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):  # no rank or server outlives its test
        os.killpg(child, signal.SIGKILL)
    return status != 0


def _run(items: Sequence[pytest.Item]) -> int:
    failed = []

    class Noted:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            failed.extend([report.nodeid] * report.failed)

    items[0].config.pluginmanager.register(Noted())
    for item in items:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return len(failed[:1])


def _set(path: str, place: Place) -> None:
    """Put a fault into the functions of a file that has been imported, and into what they start."""
    module = import_module(_module(path))
    source = Path(path).read_text(encoding="utf-8")
    file = str(module.__file__)
    before, after = (
        {(one.co_qualname, one.co_firstlineno): one for one in _codes(code)}
        for code in (
            compile(source, file, "exec", dont_inherit=True),
            compile(faulty(source, place), file, "exec", dont_inherit=True),
        )
    )
    changed = {key: after[key] for key in before if before[key] != after[key]}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == file:
            key = one.__code__.co_qualname, one.__code__.co_firstlineno
            one.__code__ = changed.get(key, one.__code__)
    if "/pipesat/kernels/" in path:  # loops that run as Python
        compiled: Any = import_module("pipesat.kernels.compiled")
        compiled._process.interprets = True
        for one in gc.get_objects():
            if type(one) is compiled.Compiled:
                one._ready = None


def _module(path: str) -> str:
    """Name of a file's module: `solver` and `heuristics` are imported as parts of pipesat."""
    parts = Path(path).relative_to(Path.cwd()).with_suffix("").parts
    return ".".join(parts if parts[0] == "pipesat" else ("pipesat", *parts))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)
