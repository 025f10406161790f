"""When every op of a step really ran: host clock on the CPU, events of the stream on CUDA.

torch wraps each action in ``record_function("PP:<action>")``, a global of its schedules module,
which is replaced here; the range of an action includes the wait for its input. Inside it,
:func:`~pipesat.runtime.stages.reporting` calls when the input is there. An op ends with its range:
the loss is part of the last stage's forward.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

_PREFIX = "PP:"


class Stamps(Protocol):
    """A clock whose readings become times only after the step.

    ``calls_block`` says whether the call that starts a transfer keeps the device from computing.
    """

    calls_block: bool

    def restart(self) -> None: ...  # noqa: D102
    def now(self) -> Any: ...  # noqa: D102
    def nanoseconds(self, stamp: Any) -> int: ...  # noqa: D102


class HostStamps:
    """The host's monotonic clock, one for all processes of a machine."""

    calls_block = True

    def restart(self) -> None:
        """Begin a step."""

    def now(self) -> int:
        """Read the clock."""
        return time.monotonic_ns()

    def nanoseconds(self, stamp: int) -> int:
        """Return the reading."""
        return stamp


class CudaStamps:
    """Events of the current CUDA stream, tied to the host's clock at the start of a step.

    Those around a call that starts a transfer say nothing: the call enqueues it on another stream.
    """

    calls_block = False

    def __init__(self) -> None:
        self.cuda = importlib.import_module("torch.cuda")
        self.restart()

    def restart(self) -> None:
        """Begin a step: an idle device, an event and a reading of the host's clock at one time."""
        self.cuda.synchronize()
        self.base = self.now()
        self.base_ns = time.monotonic_ns()
        self.cuda.synchronize()

    def now(self) -> Any:
        """Record an event."""
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanoseconds(self, stamp: Any) -> int:
        """Wait for an event; return when it was reached."""
        stamp.synchronize()
        return self.base_ns + round(1e6 * float(self.base.elapsed_time(stamp)))


class Recorder:
    """The actions of one rank in one step after the other.

    With ``counts_cores``, also how long their thread was on a core: torch computes on the CPU,
    backwards included, in the thread that asks for it.
    """

    def __init__(self, stamps: Stamps, *, counts_cores: bool) -> None:
        self.stamps = stamps
        self.counts_cores = counts_cores
        self.restart()

    def restart(self) -> None:
        """Forget what was recorded and begin a step."""
        self.stamps.restart()
        self.ops: list[list[Any]] = []  # action, waiting since, start, end
        self.on_core: list[int | None] = []  # per op, ns of its thread
        self.transfers: list[tuple[str, Any, Any]] = []
        self.waiting_since: Any = None
        self.running = False

    def begin(self, action: str) -> None:
        """Note that an action's input is there and it is about to be computed."""
        now = self.stamps.now()
        if self.running:  # the member before it of an overlapped cell
            self._end(now)
        self.ops.append([action, self.waiting_since, now, None])
        self.running = True
        self.core_time = time.thread_time_ns()

    def _end(self, now: Any) -> None:
        self.ops[-1][3] = now
        self.on_core.append(time.thread_time_ns() - self.core_time if self.counts_cores else None)
        self.waiting_since, self.running = now, False

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Stand in for torch's ``record_function``."""
        return self._action(name) if name.startswith(_PREFIX) else nullcontext()

    @contextmanager
    def _action(self, name: str) -> Iterator[None]:
        entered = self.waiting_since = self.stamps.now()
        yield
        now = self.stamps.now()
        if self.running:
            self._end(now)
        elif self.stamps.calls_block and ("SEND" in name or "RECV" in name):
            self.transfers.append((name.removeprefix(_PREFIX), entered, now))

    def document(self) -> dict[str, list[list[Any]]]:
        """Return what ran, in ns.

        ``ops`` as ``[op, since, start, end, on a core]``, ``transfers`` as ``[name, start, end]``.
        """
        at = self.stamps.nanoseconds
        return {
            "ops": [
                [name, *map(at, stamps), core]
                for (name, *stamps), core in zip(self.ops, self.on_core, strict=True)
            ],
            "transfers": [[name, at(start), at(end)] for name, start, end in self.transfers],
        }


def listen(recorder: Recorder) -> None:
    """Make torch's pipeline runtime tell a recorder of every action, in this process."""
    schedules = importlib.import_module("torch.distributed.pipelining.schedules")
    schedules.record_function = recorder.range  # type: ignore[attr-defined]
