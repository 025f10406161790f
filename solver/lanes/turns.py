"""What a lane does next: of what it may do, that which has had the least time for what it pays.

Every turn has a weight: its own, times a third and its share of what pays best. What pays is the
time units per second by which the schedule became shorter, or the bound higher, lately: half of
what was gained counts for each ``_MEMORY`` that the lane has searched since. So a turn that pays
nothing still has a quarter of the time of one that pays, and where nothing pays all have their own
weight. The rule looks at nothing but what turns took and brought: it is deterministic given those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.lane import Account, Spent

_LEAST = 1 / 3  # of a turn's own weight, if it pays nothing
_MEMORY = 10.0  # seconds of a lane after which what was gained counts half
_LEAST_STEP = 0.01  # seconds that a step counts, at least


@dataclass
class Turn:
    """Something that a lane may do: ``step`` returns whether there is more of it.

    ``ready`` says whether it is worth a step now, ``first`` that it comes before all others once.
    """

    name: str
    step: Callable[[], bool]
    weight: float = 1.0
    ready: Callable[[], bool] = lambda: True
    first: bool = False
    passed: float = field(default=0.0, init=False)  # time, divided by the weight it had
    waits: bool = field(default=False, init=False)
    seconds: float = field(default=0.0, init=False)  # lately
    gained: float = field(default=0.0, init=False)  # lately

    @property
    def rate(self) -> float:
        """Time units gained per second, lately."""
        return self.gained / self.seconds if self.gained else 0.0


def chosen(turns: Sequence[Turn]) -> Turn | None:
    """Return the next turn; ``None`` if none is ready. One that has waited catches nothing up."""
    for turn in turns:
        if turn.first:
            turn.first = False
            return turn
    ready = [turn for turn in turns if turn.ready()]
    least = min((turn.passed for turn in ready if not turn.waits), default=0.0)
    for turn in ready:
        turn.passed = max(turn.passed, least) if turn.waits else turn.passed
    for turn in turns:
        turn.waits = turn not in ready
    return min(ready, key=lambda turn: turn.passed, default=None)


def weight_of(turn: Turn, turns: Sequence[Turn]) -> float:
    """Return what a turn's own weight becomes by what it has paid, compared with the others."""
    best = max(one.rate for one in turns)
    return turn.weight * (_LEAST + (turn.rate / best if best else 0.0))


def take_turns(incumbent: Incumbent, turns: list[Turn], account: Account) -> None:
    """Take turns until the clock is over, the incumbent is proven, or there is nothing to do."""
    clock, asked = incumbent.clock, incumbent.asked
    while not (clock.over or incumbent.proven):
        turn = chosen(turns)
        if turn is None:
            return
        begin, improved, raised = clock.elapsed, incumbent.improved, asked.raised
        more = turn.step()
        taken = clock.elapsed - begin
        better = [a - b for a, b in zip(incumbent.improved, improved, strict=True)]
        higher = [a - b for a, b in zip(asked.raised, raised, strict=True)]
        spent = Spent(taken, 1, better[1], higher[1])
        account.setdefault(turn.name, Spent()).add(spent)
        taken = max(_LEAST_STEP, taken)
        for one in turns:
            one.seconds *= 0.5 ** (taken / _MEMORY)
            one.gained *= 0.5 ** (taken / _MEMORY)
        turn.seconds += taken
        turn.gained += better[0] + higher[0]
        turn.passed += taken / weight_of(turn, turns)
        if not more:
            turns.remove(turn)
