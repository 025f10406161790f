"""What every started process does: its job, an error file if it fails, an end if its parent ends.

``python -m pipesat.runtime.child FOLDER NAME TIMEOUT``; NAME is ``reference`` or ``rank <number>``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path

from pipesat.errors import BadInput
from pipesat.runtime.plan import FOLDER_PREFIX, REFERENCE

FAILED = 1


def main(folder: Path, name: str, timeout: float) -> None:
    """Run one process of a parity run; never returns normally after a failure."""
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
    try:
        if name == REFERENCE:
            from pipesat.runtime.reference import run_reference

            run_reference(folder)
        else:
            from pipesat.runtime.torch_api import load_torch_api

            api = load_torch_api()  # before anything else of torch is imported

            from pipesat.runtime.worker import run_rank

            run_rank(api, folder, int(name.split()[1]), timeout)
    except BaseException as error:
        bad_input = isinstance(error, BadInput)
        failure = {
            "time": time.monotonic(),
            "bad_input": bad_input,
            "message": str(error) if bad_input else _summary(error),
            "log": traceback.format_exc(),
        }
        partial = folder / f"{name}.partial"
        partial.write_text(json.dumps(failure))
        partial.rename(error_file(folder, name))
        os._exit(FAILED)  # torch's own clean-up may wait for ranks that are gone


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
