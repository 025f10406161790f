"""Offsets of clocks, where a receive returns before its message is there, as with NCCL."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'pipesat[torch]'")

LATE = 0.3  # seconds by which rank 1 comes later: rank 0 has enqueued everything by then


class Rank:
    """A thread with a stream of its own: what is enqueued runs there in turn, later."""

    def __init__(self) -> None:
        self.todo: queue.Queue[Callable[[], None]] = queue.Queue()
        self.arriving: queue.Queue[int] = queue.Queue()
        threading.Thread(target=self._stream, daemon=True).start()

    def _stream(self) -> None:
        while True:
            self.todo.get()()

    def enqueue(self, work: Callable[[], None]) -> None:
        self.todo.put(work)

    def synchronize(self) -> None:
        reached = threading.Event()
        self.todo.put(reached.set)
        assert reached.wait(60)


class Box:
    """A tensor of one number on a rank's device."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.value = rank, 0

    def __setitem__(self, place: int, value: int) -> None:
        self.rank.enqueue(lambda: setattr(self, "value", value))

    def item(self) -> int:
        self.rank.synchronize()
        return self.value


def test_a_receive_that_returns_early_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipesat.measure.processes import connection as clock

    ranks = [Rank(), Rank()]
    mine = threading.local()

    def zeros(*_: Any, **__: Any) -> Box:
        return Box(ranks[mine.number])

    def send(box: Box, dst: int) -> None:
        box.rank.enqueue(lambda: ranks[dst].arriving.put(box.value))

    def recv(box: Box, src: int) -> None:
        del src
        rank = box.rank
        rank.enqueue(lambda: setattr(box, "value", rank.arriving.get(timeout=60)))

    def all_gather_object(into: list[Any], machine: Any) -> None:
        into[:] = [machine] * 2
        time.sleep(LATE * mine.number)

    stand_in = SimpleNamespace(send=send, recv=recv, all_gather_object=all_gather_object)
    monkeypatch.setattr(clock, "distributed", stand_in)
    monkeypatch.setattr(clock, "torch", SimpleNamespace(zeros=zeros, int64=None))
    found: list[tuple[int, int]] = [(0, 0), (0, 0)]

    def run(number: int) -> None:
        mine.number = number
        found[number] = clock.offsets(number, 2, "cuda", ask=True)

    threads = [threading.Thread(target=run, args=[number]) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    offset, error = found[1]
    assert error > 0
    assert abs(offset) <= error  # the clock is one: without waiting it is off by LATE
