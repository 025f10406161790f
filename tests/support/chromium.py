"""A real headless Chromium, for pages. Needs one, and the extra `browser` to drive it.

Chromium is looked for by its usual names, or where the variable PIPESAT_CHROMIUM says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = os.environ.get("PIPESAT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium found: install it or set PIPESAT_CHROMIUM to its path"
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]


def opened_browser(profile: Path) -> Iterator[Any]:
    """A browser with an empty profile, until it is closed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            headless=True,
            args=FLAGS,
            viewport={"width": 1280, "height": 900},
            color_scheme="light",
        )
        yield context
        context.close()
