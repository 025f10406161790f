"""The command line, ``pipesat``."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and end the process.

    With 0, 1 check failed, 2 bad input, 3 infeasible, 130 or 143 stopped by a signal. A bug is 1
    with one line that says so; ``PIPESAT_TRACEBACK=1`` shows where it is.
    """
    from pipesat.cli.process import Stopped, end_quietly, end_with, keep_streams, unwritten

    begin = end_quietly()  # before anything slow is imported
    keep_streams()
    import gc
    import warnings

    from pipesat.cli.exits import (
        BAD_INPUT,
        TRACEBACK,
        exit_code_of,
        print_bug,
        print_error,
        print_warning,
    )
    from pipesat.core.errors import Note

    gc.set_threshold(100_000, 50, 100)  # it looked at millions of tuples, a third of the time
    warnings.showwarning = lambda message, *_: print_warning(message)
    warnings.simplefilter("always", Note)
    try:
        from pipesat.cli.app import app  # `import pipesat.cli` stays free of click

        begin()
        code = app(prog_name="pipesat", standalone_mode=False)  # what is raised is said below
    except Stopped as stopped:
        code = stopped.exit_code
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            if os.environ.get(TRACEBACK):
                raise
            code = print_bug(error)
    if why := unwritten():
        print_error("error", why)
    code = code or (BAD_INPUT if why else 0)
    end_with(code)
    sys.exit(code)
