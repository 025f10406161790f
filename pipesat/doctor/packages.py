"""Packages that pipesat needs and those of its extras: there, new enough, and able to load."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipesat.doctor.report import Line, Part

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DEVELOPMENT = frozenset({"test", "check", "docs"})  # extras for pipesat itself


def package_lines() -> Iterator[Line]:
    """Yield a line for Python, pipesat, each package it needs, and each package of an extra.

    What is needed is read from pipesat's own metadata, so that it is said in one place only.
    """
    yield Line("versions", "python", "ok", f"{platform.python_version()} on {platform.platform()}")
    try:
        from packaging.requirements import Requirement

        yield Line("versions", "pipesat", "ok", importlib.metadata.version("pipesat"))
        needs = [Requirement(text) for text in importlib.metadata.requires("pipesat") or ()]
    except ImportError as error:  # PackageNotFoundError is one
        reason = f"{error}, so nothing is known of what it needs"
        yield Line("versions", "pipesat", "FAILED", reason, "pip install . in the clone")
        return
    core = [need for need in needs if _wanted(need, "")]
    yield from map(core_line, core)
    for extra in importlib.metadata.metadata("pipesat").get_all("Provides-Extra") or ():
        if extra not in DEVELOPMENT:
            own = (need for need in needs if need not in core and _wanted(need, extra))
            yield from (extra_line(extra, need) for need in own)


def _wanted(need: Requirement, extra: str) -> bool:
    """Whether it applies to this Python and platform, with the extra."""
    return need.marker is None or need.marker.evaluate({"extra": extra})


def core_line(need: Requirement) -> Line:
    """Judge a package that pipesat cannot do without."""
    version, wrong = installed(need)
    if wrong:
        return Line("versions", need.name, "FAILED", wrong, pip_install(need))
    return _loading("versions", need.name, need, version)


def extra_line(extra: str, need: Requirement) -> Line:
    """Judge a package of an extra; none, or too old a one, is no fault of the installation."""
    name = need.name if need.name == extra else f"{need.name} ({extra})"
    version, wrong = installed(need)
    if wrong:
        return Line("extras", name, "missing", wrong, pip_install(need))
    return _loading("extras", name, need, version)


def _loading(part: Part, name: str, need: Requirement, version: str) -> Line:
    if wrong := does_not_load(need.name):
        return Line(part, name, "FAILED", wrong, pip_install(need, "--force-reinstall --no-deps "))
    return Line(part, name, "ok", version)


def installed(need: Requirement) -> tuple[str, str]:
    """Return the installed version, and what is wrong with it ('' if nothing)."""
    try:
        version = importlib.metadata.version(need.name)
    except importlib.metadata.PackageNotFoundError:
        return "", "not installed"
    if need.specifier.contains(version, prereleases=True):
        return version, ""
    return version, f"{version} is installed, pipesat needs {need.specifier}"


def does_not_load(name: str) -> str:
    """Import the module that has the distribution's name; return why it does not load, or ''."""
    try:
        importlib.import_module(name.lower().replace("-", "_"))
    except Exception as error:  # a broken installation may raise anything
        return f"does not load: {type(error).__name__}: {error}"
    return ""


def pip_install(need: Requirement, options: str = "") -> str:
    """Return the command that brings a package in a version that fits."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    return f"pip install {options}{shlex.quote(f'{need.name}{extras}{need.specifier}')}"
