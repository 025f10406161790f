"""How large the microbatches of one replica should be, where sequences are packed.

Equal ones are not the best: small ones that enter first and last shorten a pipeline's warm-up and
cool-down. With shares c of a replica's work, the makespan is the longest of many paths, each linear
in c, so the best shares are those of a convex programme: a game against the path. Multiplicative
weights (Freund and Schapire 1999) play it: what lies on the longest path shrinks a little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pipesat.core.arrays import Floats

if TYPE_CHECKING:
    from pipesat.replicas.replay import Replay

_STEPS: Final = 400
_OPS: Final = 200_000  # to be timed in all; of long replicas it takes fewer steps
_RATE: Final = 0.3
_FINER_STEPS, _FINER_RATE = 40, 0.1
_LEAST: Final = 1e-3  # of an equal share


def best_shares(
    replay: Replay, costs: Floats, most: float = 1.0, near: Floats | None = None
) -> Floats:
    """Return the share of each of a replica's microbatches, in the order in which they enter.

    Parameters
    ----------
    costs
        What all of a replica's sequences take together, in the replay's columns.
    most
        The largest share that a microbatch may have.
    near
        Shares that were the best of another ``most``: fewer and finer steps begin there.
    """
    m = replay.places
    most, costs = max(most, 1 / m), costs.astype(float) / max(float(costs.max()), 1.0)
    here: Floats = np.full(m, 1 / m) if near is None else within(near, most)
    steps, first = (_STEPS, _RATE) if near is None else (_FINER_STEPS, _FINER_RATE)
    best = mean = here
    least = np.inf
    for step in range(min(steps, 1 + _OPS // len(replay.ops))):
        lengths = costs[:, None, None] * here[None, :, None]
        value = replay.ends(lengths)[replay.last].max()
        if value < least:
            least, best = value, here
        on_path = replay.longest_path(lengths) @ costs
        spread = np.ptp(on_path)
        if not spread:
            break
        rate = first / np.sqrt(step + 1)
        here = here * np.exp(-rate * (on_path - on_path.min()) / spread)
        here = within(here, most)
        mean = mean + (here - mean) / (step + 2)
    by_mean = replay.ends(costs[:, None, None] * mean[None, :, None])[replay.last].max()
    return mean if by_mean < least else best


def within(shares: Floats, most: float) -> Floats:
    """Return shares with the sum of 1, none above ``most`` or next to nothing."""
    shares = np.maximum(shares / shares.sum(), _LEAST / len(shares))
    for _ in range(len(shares)):
        over = shares >= most
        if not over.any() or over.all():
            break
        rest = 1 - most * over.sum()
        shares = np.where(over, most, shares * rest / shares[~over].sum())
        if (shares <= most * (1 + 1e-9)).all():
            break
    found: Floats = shares / shares.sum()
    return found
