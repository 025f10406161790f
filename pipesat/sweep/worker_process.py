"""The other end of :mod:`pipesat.sweep.worker_main`: a process that is sent jobs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from typing import IO, Final, cast

from pipesat.core.errors import RunFailed
from pipesat.sweep.run_case import Answer, Job, answer
from pipesat.sweep.worker_main import READY, killed_by

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LOG_LINES: Final = 12


def environment() -> dict[str, str]:
    """Ours, with our import path and no threads that a fork would lose."""
    path = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    return dict(os.environ) | _ONE_THREAD | {"PYTHONPATH": path}


class WorkerProcess:
    """A running slot; the next job replaces a process that has ended.

    Each is in a session of its own: a Ctrl-C reaches the parent alone.
    """

    def __init__(self) -> None:
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._process = self._start()
        self._ready = False
        self._received = b""

    def fileno(self) -> int:
        """Return what becomes readable when there is an answer, or the process has ended."""
        return self._output.fileno()

    def send(self, job: Job) -> None:
        """Start a job; the answer to the one before must have been taken."""
        if self._process.poll() is not None:
            self._end()
            self._process, self._ready, self._received = self._start(), False, b""
        with contextlib.suppress(BrokenPipeError):  # it has just ended: the answer will say how
            self._input.write(json.dumps(job).encode() + b"\n")
            self._input.flush()

    def receive(self) -> Answer | None:
        """Read what there is, waiting for a part of it; return the answer once it is whole.

        Raises
        ------
        RunFailed
            If the process could not even start.
        """
        part = os.read(self.fileno(), 1 << 20)
        self._received += part
        if not self._ready and self._received.startswith(READY):
            self._ready = True
            self._received = self._received.removeprefix(READY)
        if self._ready and self._received.endswith(b"\n"):
            found: Answer = json.loads(self._received)
            self._received = b""
            return found
        return None if part else self._end_of_process()

    def _end_of_process(self) -> Answer:
        code = self._process.wait()
        if not self._ready and code >= 0:
            raise RunFailed(f"a process for cases ended at once with exit code {code}", self._log())
        why = killed_by(-code) if code < 0 else f"its process ended with exit code {code}"
        return answer("killed", why) | {"wall_s": None, "peak_mib": None}

    def close(self) -> None:
        """End the process and the case that it is running."""
        self._end()
        self._words.close()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # our own interpreter and module
            [sys.executable, "-P", "-m", "pipesat.sweep.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=environment(),
            start_new_session=True,
        )

    def _end(self) -> None:
        self._process.kill()  # its fork sees that and ends
        self._process.wait()
        self._output.close()
        with contextlib.suppress(BrokenPipeError):  # a job that it did not take any more
            self._input.close()

    @property
    def _input(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    @property
    def _output(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def _log(self) -> list[str]:
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").splitlines()
        return [line for line in lines if line.strip()][-_LOG_LINES:]
