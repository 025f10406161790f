"""The host of processes that each run the Python code in a file of its name, as ``python -c``."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from pipesat.runtime.launch import main


def work(folder: Path, name: str, timeout: float) -> None:
    del timeout
    code = 0
    try:
        exec((folder / f"{name}.code").read_text(), {"os": os, "sys": sys, "host": os.getppid()})
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(work)
