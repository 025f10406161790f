"""What a statement loads."""

from __future__ import annotations

import json
import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    """Top-level modules loaded by a statement in a fresh interpreter."""
    show = "import sys, json; json.dump([m.partition('.')[0] for m in sys.modules], sys.stderr)"
    code = f"try:\n {statement}\nfinally:\n {show}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr))
