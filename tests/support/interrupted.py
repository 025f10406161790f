"""A command in a process of its own that is interrupted when it has told of something."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any


def interrupted(*command: object, after: str) -> Any:
    """Interrupt a command once a line of its messages has ``after``; return the JSON it prints."""
    run = subprocess.Popen(
        [sys.executable, "-m", "pipesat", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    for line in run.stderr:
        if after in line:
            break
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate()
    assert run.returncode == 130
    return json.loads(out)
