"""A pytest plugin: note how long every test takes, and what is made for a whole file of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TIMES = Path(os.environ["FAULTS_TIMES"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Once, by the process that deals tests to others: each of these has this plugin, too."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with TIMES.open("a", encoding="utf-8") as file:
            file.write(f"{report.duration:.3f} {report.outcome} {report.nodeid}\n")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[None]:
    """What a fixture of several tests meets is met by all of its file."""
    before = os.environ.get("FAULTS_FILE", "")
    if fixturedef.scope != "function":
        os.environ["FAULTS_FILE"] = request.node.nodeid.partition("::")[0]
    try:
        return (yield)
    finally:
        os.environ["FAULTS_FILE"] = before
