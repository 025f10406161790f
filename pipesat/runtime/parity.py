"""Does an order train the same as one process? Losses and every gradient, compared in float64."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipesat.core.errors import BadInput
from pipesat.core.showing import Displayed, Facts
from pipesat.runtime.answers import Answer, Check, compare_answers, loss_name
from pipesat.runtime.job import Job, write_jobs
from pipesat.runtime.launch import run_children
from pipesat.runtime.orders import (
    FOLDER_PREFIX,
    REFERENCE,
    TorchOrder,
    answer_file,
    order_of_csv,
    progress_file,
    rank_name,
)
from pipesat.runtime.torch_api import require_torch

TIMEOUT = 120.0
"""Seconds for all processes together, their start included."""


@dataclass(frozen=True, repr=False, slots=True)
class ParityReport(Displayed):
    """What came out of running one order.

    Attributes
    ----------
    losses
        The reference's loss of every microbatch.
    check
        What was compared, and what was farthest off.
    gradients, numbers
        How many parameters' gradients were compared, and how many numbers these have together.
    planned, executed
        Per rank, the actions of the order, and those that torch's runtime ran, in its order.
    """

    losses: tuple[float, ...]
    check: Check
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
        return self.executed_as_planned and self.check.passed

    @property
    def counts(self) -> list[dict[str, int]]:
        """Per rank, how many actions of each of torch's letters were executed."""
        letters = (Counter(action.strip("0123456789") for action in row) for row in self.executed)
        return [{letter: count[letter] for letter in "FIWB"} for count in letters]

    def facts(self) -> Facts:
        """Return whether it passed, the largest error, and what was compared."""
        worst, limit = self.check.worst, self.check.tolerance
        error = f"{worst.relative_error:.1e} ({worst.name}), limit {limit:.0e}"
        compared = (
            f"{len(self.losses)} losses and the gradients of {self.gradients} parameters "
            f"({self.numbers} numbers)"
        )
        order = "as planned" if self.executed_as_planned else "NOT as planned"
        passed = "passed" if self.passed else "failed"
        facts = [("parity", passed), ("largest relative error", error)]
        facts += [("not trained", text) for text in self.check.complaints]
        return [*facts, ("compared", compared), ("order", order)]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per rank: how many actions of each of torch's letters it ran."""
        return [{"rank": rank} | counts for rank, counts in enumerate(self.counts)]

    def document(self) -> dict[str, Any]:
        """Return the report for ``--json``; an infinite error is ``None``."""
        return self.check.document() | {
            "passed": self.passed,
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
        Seconds for everything. Then all processes are ended.
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
    texts = modes or [""] * len(orders)
    orders_wanted = list(map(order_of_csv, orders, texts))
    ranks = {len(wanted.rows) for wanted in orders_wanted}
    if len(ranks) != 1:
        raise BadInput("expected orders for one number of ranks", value=sorted(ranks))
    names = [REFERENCE, *map(rank_name, range(ranks.pop()))]
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        jobs = [
            Job(one.csv, steps=1, warm_up=0, modes=text, check=True)
            for one, text in zip(orders_wanted, texts, strict=True)
        ]
        write_jobs(folder, jobs)
        run_children(names, folder, timeout=timeout, stop=stop)
        return [_report(folder, number, wanted) for number, wanted in enumerate(orders_wanted)]


def _report(folder: Path, number: int, wanted: TorchOrder) -> ParityReport:
    names = [rank_name(rank) for rank in range(len(wanted.rows))]
    expected = Answer.read(answer_file(folder, REFERENCE, number))
    got = Answer.all_of(Answer.read(answer_file(folder, name, number)) for name in names)
    losses = tuple(float(expected.values[loss_name(i)]) for i in range(wanted.microbatches))
    return ParityReport(
        losses,
        compare_answers(expected, got),
        len(expected.values) - len(losses),
        sum(value.size for value in expected.values.values()) - len(losses),
        wanted.rows,
        tuple(tuple(progress_file(folder, name, number, 0).read_text().split()) for name in names),
    )
