"""What every started process does: its job, an error file if it fails, an end if its parent ends.

``python -m pipesat.runtime.child FOLDER NAME TIMEOUT``; NAME is ``reference`` or ``rank <number>``.
The folder's jobs say what to run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from pipesat.core.errors import BadInput, PipesatError
from pipesat.runtime.orders import FOLDER_PREFIX, REFERENCE

FAILED = 1

Work = Callable[[Path, str, float], None]
"""What a process of a name does in a folder, within so many seconds."""


def main(folder: Path, name: str, timeout: float, work: Work | None = None) -> None:
    """Run one process of a parity or measured run, or other work; a failure never returns."""
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
    try:
        (work or _work)(folder, name, timeout)
    except BaseException as error:
        where = error.where if isinstance(error, BadInput) and not error.source else ""
        said = str(error).removeprefix(f"{where}: ")
        failure = {
            "time": time.monotonic(),
            "bad_input": isinstance(error, BadInput),
            "where": where,
            "message": said if isinstance(error, PipesatError) else _summary(error),
            "log": traceback.format_exc(),
        }
        partial = folder / f"{name}.partial"
        partial.write_text(json.dumps(failure))
        partial.rename(error_file(folder, name))
        os._exit(FAILED)  # torch's own clean-up may wait for ranks that are gone


def _work(folder: Path, name: str, timeout: float) -> None:
    if name == REFERENCE:
        from pipesat.runtime.reference import run_reference

        run_reference(folder)
        return
    from pipesat.runtime.torch_api import load_torch_api

    api = load_torch_api()  # before anything else of torch is imported
    from pipesat.runtime.measured_rank import run_measured_rank

    rank = int(name.split()[1])
    run_measured_rank(api, folder, rank, timeout)


def _summary(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0].strip()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def error_file(folder: Path, name: str) -> Path:
    """Where a process says how it failed, before it ends."""
    return folder / f"{name}.error"


def _end_with_parent(folder: Path) -> None:
    """Wait for the end of standard input, which the parent holds open as long as it lives.

    A parent that was killed could not remove the run's folder either.
    """
    while os.read(0, 1):
        pass
    if folder.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(FAILED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
