"""Does an order train the same as one process? Losses and every gradient, compared in float64."""

from __future__ import annotations

import math
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.core.errors import BadInput
from pipesat.core.showing import Displayed, Facts
from pipesat.runtime.launch import run_children
from pipesat.runtime.orders import (
    FOLDER_PREFIX,
    REFERENCE,
    TorchOrder,
    answer_file,
    loss_name,
    order_of_csv,
    progress_file,
    rank_name,
    write_orders,
)
from pipesat.runtime.torch_api import require_torch

if TYPE_CHECKING:
    import numpy as np

TOLERANCE = 1e-10
"""Largest relative error that counts as equal; float64 sums in another order differ by 1e-15."""
TIMEOUT = 120.0
"""Seconds for all processes together, their start included."""


@dataclass(frozen=True)
class Deviation:
    """How far one loss or gradient is off: ``max |got - expected| / max |expected|``.

    Infinite where it is missing, of another shape, not finite, or where the expected one is 0.
    """

    name: str
    relative_error: float


@dataclass(frozen=True, repr=False, slots=True)
class ParityReport(Displayed):
    """What came out of running one order.

    Attributes
    ----------
    losses
        The reference's loss of every microbatch.
    worst
        The loss or gradient with the largest relative error.
    gradients, numbers
        How many parameters' gradients were compared, and how many numbers these have together.
    planned, executed
        Per rank, the actions of the order, and those that torch's runtime ran, in its order.
    """

    losses: tuple[float, ...]
    worst: Deviation
    gradients: int
    numbers: int
    planned: tuple[tuple[str, ...], ...]
    executed: tuple[tuple[str, ...], ...]

    @property
    def executed_as_planned(self) -> bool:
        """Whether every rank ran exactly the actions of the order, in its order."""
        return self.executed == self.planned

    @property
    def passed(self) -> bool:
        """Whether the order was run as planned and everything agrees within the tolerance."""
        return self.executed_as_planned and self.worst.relative_error < TOLERANCE

    @property
    def counts(self) -> list[dict[str, int]]:
        """Per rank, how many actions of each of torch's letters were executed."""
        letters = (Counter(action.strip("0123456789") for action in row) for row in self.executed)
        return [{letter: count[letter] for letter in "FIWB"} for count in letters]

    def facts(self) -> Facts:
        """Return whether it passed, the largest error, and what was compared."""
        error = f"{self.worst.relative_error:.1e} ({self.worst.name}), limit {TOLERANCE:.0e}"
        compared = (
            f"{len(self.losses)} losses and the gradients of {self.gradients} parameters "
            f"({self.numbers} numbers)"
        )
        order = "as planned" if self.executed_as_planned else "NOT as planned"
        passed = "passed" if self.passed else "failed"
        facts = [("parity", passed), ("largest relative error", error)]
        return [*facts, ("compared", compared), ("order", order)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per rank: how many actions of each of torch's letters it ran."""
        return [{"rank": rank} | counts for rank, counts in enumerate(self.counts)]

    def document(self) -> dict[str, Any]:
        """Return the report for ``--json``; an infinite error is ``None``."""
        error = self.worst.relative_error
        return {
            "passed": self.passed,
            "largest_relative_error": error if math.isfinite(error) else None,
            "worst": self.worst.name,
            "tolerance": TOLERANCE,
            "losses": list(self.losses),
            "gradients": self.gradients,
            "numbers": self.numbers,
            "executed_as_planned": self.executed_as_planned,
            "executed": self.counts,
        }


def check_parity(
    orders: Sequence[str],
    *,
    modes: Sequence[str] = (),
    timeout: float = TIMEOUT,
    stop: threading.Event | None = None,
) -> list[ParityReport]:
    """Run orders in torch's pipeline runtime and compare each with a single process.

    Parameters
    ----------
    orders
        In torch's ``compute_only`` CSV, all for the same number of ranks: they run one after the
        other in the same processes, whose start takes most of the time.
    modes
        The file of memory modes beside each, empty where everything is kept; none: all are kept.
    timeout
        Seconds for everything; then all processes are ended.
    stop
        Ends everything when set.

    Raises
    ------
    BadInput
        If torch is missing or lacks the pipeline runtime, or an order cannot be run at all.
    RunFailed
        If a rank fails or hangs, or ``stop`` was set.
    """
    require_torch()
    orders_wanted = list(map(order_of_csv, orders, modes or [""] * len(orders)))
    ranks = {len(wanted.rows) for wanted in orders_wanted}
    if len(ranks) != 1:
        raise BadInput("expected orders for one number of ranks", value=sorted(ranks))
    names = [REFERENCE, *map(rank_name, range(ranks.pop()))]
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        write_orders(folder, orders_wanted)

        run_children(names, folder, timeout=timeout, stop=stop)
        return [_report(folder, number, wanted) for number, wanted in enumerate(orders_wanted)]


def _report(folder: Path, number: int, wanted: TorchOrder) -> ParityReport:
    names = [rank_name(rank) for rank in range(len(wanted.rows))]
    expected = read_answer(answer_file(folder, REFERENCE, number))
    got: dict[str, np.ndarray] = {}
    for name in names:
        got |= read_answer(answer_file(folder, name, number))
    losses = tuple(float(expected[loss_name(i)]) for i in range(wanted.microbatches))
    return ParityReport(
        losses,
        worst_deviation(expected, got),
        len(expected) - len(losses),
        sum(value.size for value in expected.values()) - len(losses),
        wanted.rows,
        tuple(tuple(progress_file(folder, name, number).read_text().split()) for name in names),
    )


def read_answer(path: Path) -> dict[str, np.ndarray]:
    """Read losses and gradients that a process wrote."""
    import numpy as np

    with np.load(path) as answer:
        return dict(answer)


def worst_deviation(expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> Deviation:
    """Return the loss or gradient that is farthest from the expected one."""
    return max(
        (Deviation(name, relative_error(value, got.get(name))) for name, value in expected.items()),
        key=lambda deviation: deviation.relative_error,
    )


def relative_error(expected: np.ndarray, got: np.ndarray | None) -> float:
    """Return ``max |got - expected| / max |expected|``, infinite where that says nothing.

    That is: ``got`` is missing or has another shape, one of both is not finite, or ``expected`` is
    all zero (agreeing with nothing would prove nothing).
    """
    import numpy as np

    if got is None or got.shape != expected.shape:
        return math.inf
    largest = float(np.abs(expected).max())
    error = float(np.abs(got - expected).max())
    if largest == 0 or not math.isfinite(largest) or not math.isfinite(error):
        return math.inf
    return error / largest
