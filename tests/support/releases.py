"""Released packages that exports are held against: ``bash scripts/releases`` installs them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

RELEASES: Final = Path(os.environ.get("PIPESAT_RELEASES", os.devnull))


def release(name: str, version: str) -> Path:
    """Where a release lies; skip the test without it."""
    folder = RELEASES / f"{name}-{version}"
    if not folder.is_dir():
        pytest.skip(f"needs {name} {version}: bash scripts/releases installs it and runs this")
    pytest.importorskip("torch", reason="needs the extra `torch`")
    return folder
