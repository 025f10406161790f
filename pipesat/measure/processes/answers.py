"""What runs end with: whether losses and gradients agree with one process, and peaks of memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.amounts import bytes_of
from pipesat.core.showing import Facts
from pipesat.problem.problem import Problem

if TYPE_CHECKING:
    import numpy as np


_LOSS: Final = "loss of microbatch "
TOLERANCES: Final = {"float64": 1e-10, "float32": 1e-4, "float16": 2.5e-3, "bfloat16": 2e-2}
"""Largest relative error that counts as equal, by the coarsest type of a run.

float64 sums in another order differ by 1e-15. Gradients of 16 bits are added by the reference in
the order of the run, so that both agree to the bit on a CPU; five roundings (2^-11 and 2^-8 of a
number each) are left to a GPU's kernels (experiments/on-a-gpu: up to 1.2 % in bfloat16).
"""


@dataclass(frozen=True)
class Answer:
    """What one process has after a step.

    Attributes
    ----------
    values
        Losses and gradients by name. numpy has no bfloat16: float32 holds it, and whatever else is
        shorter, exactly.
    types
        torch's names of their types.
    untrained
        Parameters that are to be trained and have no gradient.
    """

    values: Mapping[str, np.ndarray]
    types: frozenset[str]
    untrained: frozenset[str]

    @classmethod
    def of(cls, losses: Mapping[int, Any], modules: Mapping[int, Any]) -> Answer:
        """Take the losses of microbatches, and what the modules of stages have."""
        tensors = {f"{_LOSS}{number}": loss for number, loss in losses.items()}
        untrained = set()
        for stage, module in modules.items():
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    tensors[f"gradient of stage {stage}'s {name}"] = parameter.grad
                elif parameter.requires_grad:
                    untrained.add(f"stage {stage}'s {name}")
        types = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
        exact = {
            name: tensor if types[name] == "float64" else tensor.float()
            for name, tensor in tensors.items()
        }
        values = {  # copies: the next step changes them
            name: tensor.detach().cpu().numpy().copy() for name, tensor in exact.items()
        }
        return cls(values, frozenset(types.values()), frozenset(untrained))

    @classmethod
    def all_of(cls, parts: Iterable[Answer]) -> Answer:
        """Put together what the ranks have."""
        parts = list(parts)
        return cls(
            {name: value for part in parts for name, value in part.values.items()},
            frozenset[str]().union(*(part.types for part in parts)),
            frozenset[str]().union(*(part.untrained for part in parts)),
        )


@dataclass(frozen=True)
class Check:
    """The loss or gradient that is farthest from the reference's, of ``compared`` ones.

    ``error`` is its :func:`relative_error`. ``untrained`` are the parameters that have no gradient
    after the step, ``unused`` those of them that have none in one process either. ``losses`` are
    the reference's, ``numbers`` all that its gradients have.
    """

    worst: str
    error: float
    compared: int
    tolerance: float
    untrained: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    losses: tuple[float, ...] = ()
    numbers: int = 0

    @property
    def passed(self) -> bool:
        """Whether everything agrees within the tolerance, and every parameter is trained."""
        return self.error < self.tolerance and not self.untrained

    def facts(self) -> Facts:
        """Return the largest error, and which parameters are not trained, by whose fault."""
        error = f"{self.error:.1e} ({self.worst})"
        verdict = "passed" if self.passed else "failed"
        dtype = next(name for name, limit in TOLERANCES.items() if limit == self.tolerance)
        return [
            (
                "check",
                f"{verdict}: largest relative error {error} of {self.compared} losses and "
                f"gradients ({self.numbers} numbers), limit {self.tolerance:.0e} in {dtype}",
            ),
            (
                "lost gradients",
                _listed(
                    [name for name in self.untrained if name not in self.unused],
                    "one process has them, torch loses them, so that training would leave these "
                    "parameters as they are. Write that stage's backward whole, or see the "
                    ".hazards.txt beside the order",
                ),
            ),
            (
                "no gradients",
                _listed(
                    self.unused,
                    "not in one process either: the loss does not depend on them. Set "
                    "requires_grad=False where that is meant",
                ),
            ),
        ]

    def document(self) -> dict[str, Any]:
        """Return the check for ``--json``; an infinite error is ``None``."""
        return {
            "passed": self.passed,
            "largest_relative_error": self.error if math.isfinite(self.error) else None,
            "worst": self.worst,
            "compared": self.compared,
            "tolerance": self.tolerance,
            "untrained": list(self.untrained),
        }


def _listed(names: Sequence[str], why: str) -> str:
    return f"{', '.join(names)}: {why}" if names else ""


def compare_answers(expected: Answer, got: Answer) -> Check:
    """Compare what the ranks have with what one process has."""
    names = dict.fromkeys([*expected.values, *got.values])
    errors = {
        name: relative_error(expected.values.get(name), got.values.get(name)) for name in names
    }
    worst = max(errors, key=lambda name: errors[name])
    losses = [float(value) for name, value in expected.values.items() if name.startswith(_LOSS)]
    return Check(
        worst,
        errors[worst],
        len(names),
        max(TOLERANCES.get(name, max(TOLERANCES.values())) for name in expected.types),
        tuple(sorted(got.untrained)),
        tuple(sorted(got.untrained & expected.untrained)),
        tuple(losses),
        sum(value.size for value in expected.values.values()) - len(losses),
    )


def relative_error(expected: np.ndarray | None, got: np.ndarray | None) -> float:
    """Return ``max |got - expected| / max |expected|``, infinite where that says nothing.

    That is: one is missing or has another shape, one of both is not finite, or ``expected`` is
    all zero (agreeing with nothing would prove nothing).
    """
    import numpy as np

    if got is None or expected is None or got.shape != expected.shape:
        return math.inf
    largest = float(np.abs(expected).max())
    error = float(np.abs(got - expected).max())
    if largest == 0 or not math.isfinite(largest) or not math.isfinite(error):
        return math.inf
    return error / largest


@dataclass(frozen=True)
class DevicePeak:
    """The most memory that a device held, against the prediction and its capacity.

    Attributes
    ----------
    capacity, predicted, measured
        In the problem's unit. ``measured`` and what follows from it are ``None`` where that unit is
        none that is known, or another model ran than the one whose memory was predicted.
    error
        By which share of the prediction the measured peak is off.
    fits
        Whether the measured peak is within the capacity.
    """

    device: str
    capacity: int | None
    predicted: int
    measured: float | None
    measured_bytes: int
    error: float | None
    fits: bool | None


def device_peaks(
    problem: Problem, predicted: Sequence[int], measured: Sequence[int], *, comparable: bool = True
) -> tuple[DevicePeak, ...]:
    """Put both peaks of every device together, of one model if they are ``comparable``."""
    unit = bytes_of(problem.memory_unit) if comparable else None
    peaks = []
    for number, (most, seen) in enumerate(zip(predicted, measured, strict=True)):
        name, capacity = problem.device_name(number), problem.devices[number].memory
        units = error = fits = None
        if unit is not None:
            units, fits = float(seen / unit), capacity is None or seen <= capacity * unit
            error = units / most - 1 if most else None
        peaks.append(DevicePeak(name, capacity, most, units, seen, error, fits))
    return tuple(peaks)
