"""Fixtures that several tests share."""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis.vendor import pretty

from pipesat.cli import main
from pipesat.cli.process import SIGNALS, ending
from pipesat.problem.problem import Problem
from tests.support.warm import WarmHosts

# The same examples everywhere, and no time limit that a slow core would miss.
settings.register_profile("pipesat", derandomize=True, deadline=None)
settings.load_profile("pipesat")

# What failed is shown in full: a problem's own repr is short.
pretty.for_type_by_name(
    "pipesat.problem.problem", "Problem", lambda it, p, _: p.text(json.dumps(it.document))
)
pretty.for_type_by_name(
    "pipesat.schedule.schedule", "Schedule", lambda it, p, _: p.text(f"Schedule({it.devices})")
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the collector what is being collected: it would look at it five thousand times."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Spare the collector thousands of tests and modules, which stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Collect what tests left behind, so that its warnings count; once will do."""
    ending.clear()  # this process ends with pytest's exit code
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def warm_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmHosts]:
    hosts = WarmHosts(tmp_path_factory.mktemp("warm"))
    yield hosts
    hosts.close()


@pytest.fixture
def warm(warm_hosts: WarmHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start ranks in a host that has imported torch already."""
    monkeypatch.setattr("pipesat.measure.processes.launch.Host", warm_hosts)


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout; anything else there is an error."""
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line inside this process, as the console script does."""

    # the console script's process ends with it; this one goes on, with its own handlers
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    for hook in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, hook, getattr(sys, hook))

    # what is printed does not depend on how fast this machine is
    monkeypatch.setattr("pipesat.cli.progress.SILENCE", 1e6)

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["pipesat", *map(str, arguments)])
        monkeypatch.setattr("pipesat.core.strict_json._READ", set())  # of this process
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as exit_info:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return Outcome(int(exit_info.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write a problem, a JSON document, a text or bytes into a file of the test's own folder."""

    def write(content: object, name: str = "problem.json") -> Path:
        if isinstance(content, Problem):
            content = content.document
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
