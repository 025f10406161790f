"""``solve`` with lanes in processes of their own, which are killed at random moments."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from bench.campaign.case import Case
from bench.campaign.commands.solve import judged_solve
from pipesat.solver.lanes import team


def case(case: Case) -> None:
    """Kill lanes now and then: nothing but their time is lost, and none is left."""
    seconds, chance = case.rng.choice([2.0, 3.0]), case.rng.random()
    judged_solve(case, 2, seconds, before=lambda: _kill(chance))
    left = [pid for pid in _lanes(None) if _folder(pid) == case.folder]
    case.expect(not left, f"{len(left)} lanes are left")


def _kill(chance: float) -> None:
    """Start lanes at once, and kill one of them after some time, again and again."""
    team.HEAD_START = 0.0  # type: ignore[misc]
    threading.Thread(target=_killing, args=(Random(chance), os.getpid()), daemon=True).start()


def _killing(rng: Random, parent: int) -> None:
    while True:
        time.sleep(rng.uniform(0.0, 1.5))
        for pid in _lanes(parent)[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _lanes(parent: int | None) -> list[int]:
    """Processes of lanes; those of one parent, or all."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            of = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
            is_lane = b"pipesat.solver.lanes.lane" in (entry / "cmdline").read_bytes()
            found += [int(entry.name)] if is_lane and parent in (None, of) else []
    return found


def _folder(pid: int) -> Path | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cwd").readlink()
    return None
