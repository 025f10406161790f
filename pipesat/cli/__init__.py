"""The command line, ``pipesat``."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line and exit: 0, 1 check failed, 2 bad input, 3 infeasible, 130, 143."""
    from pipesat.cli.app import app  # `import pipesat.cli` stays free of typer
    from pipesat.cli.exits import exit_code_of

    if isinstance(sys.stdout, io.TextIOWrapper):  # names from files may not fit its encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        sys.exit(code)
