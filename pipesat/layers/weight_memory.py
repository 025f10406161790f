"""Static memory of weights: what weights, gradients and optimizer take, by type of number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pipesat.core.errors import BadInput
from pipesat.profile.static import BYTES_OF, OPTIMIZER_STATES


class StaticParts(NamedTuple):
    """Bytes by what they are for."""

    weights: int
    gradients: int
    optimizer: int


@dataclass(frozen=True, kw_only=True)
class WeightMemory:
    """What memory one weight takes. ``weights`` of layers then are numbers of weights.

    Attributes
    ----------
    unit_bytes
        Bytes of one memory unit: 1048576 for MiB.
    dtype, grad_dtype, state_dtype
        Types of weights, gradients and optimizer states; the latter two default to ``dtype``.
    optimizer
        One of :data:`pipesat.profile.static.OPTIMIZER_STATES`.
    master_dtype
        Type of a second copy of the weights that the optimizer updates; ``None``: there is none.
    """

    unit_bytes: int
    dtype: str = "bfloat16"
    grad_dtype: str | None = None
    optimizer: str = "adamw"
    state_dtype: str | None = None
    master_dtype: str | None = None

    def __post_init__(self) -> None:
        for field in ("dtype", "grad_dtype", "state_dtype", "master_dtype"):
            value = getattr(self, field)
            if value is not None and value not in BYTES_OF:
                expected = f"expected one of {', '.join(BYTES_OF)}"
                raise BadInput(expected, where=f"static.{field}", value=value)
        if self.optimizer not in OPTIMIZER_STATES:
            expected = f"expected one of {', '.join(OPTIMIZER_STATES)}"
            raise BadInput(expected, where="static.optimizer", value=self.optimizer)

    def parts(self, weights: int) -> StaticParts:
        """Bytes that ``weights`` weights take."""
        own = BYTES_OF[self.dtype]
        states = OPTIMIZER_STATES[self.optimizer] * BYTES_OF[self.state_dtype or self.dtype]
        master = 0 if self.master_dtype is None else BYTES_OF[self.master_dtype]
        gradient = BYTES_OF[self.grad_dtype or self.dtype]
        return StaticParts(weights * own, weights * gradient, weights * (states + master))

    def memory(self, weights: int) -> int:
        """Memory units that ``weights`` weights take in all, rounded up."""
        return -(-sum(self.parts(weights)) // self.unit_bytes)
