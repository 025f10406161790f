"""Consoles and number formats: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console


def stdout() -> Console:
    """Console for results; names from files are never read as markup."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False)


def stderr() -> Console:
    """Console for progress and messages."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()
