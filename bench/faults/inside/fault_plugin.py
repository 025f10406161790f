"""A pytest plugin: note the first test that fails; end one that takes the processor for ever."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

NOTE = Path(os.environ["FAULT_NOTE"])
PROCESSOR = 120.0
"""Seconds of its own that a test may take: twenty times what the slowest takes without a fault."""


def pytest_sessionstart() -> None:
    """The first failure will do, not the smallest one."""
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)
    parent = settings.get_profile("pipesat")
    settings.register_profile("faults", parent=parent, phases=phases, database=None)
    settings.load_profile("faults")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        NOTE.write_text(f"{report.nodeid} collected", encoding="utf-8")


def pytest_runtest_logstart(nodeid: str) -> None:
    NOTE.write_text(f"{nodeid} runs", encoding="utf-8")
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    if report.failed:
        NOTE.write_text(f"{report.nodeid} fails", encoding="utf-8")
