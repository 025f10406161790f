"""Noise from a profile: how much the ops of each stage varied while they were measured.

A stage's coefficient of variation is that of a normal distribution with the measured 10th and 90th
percentiles, ``(p90 - p10) / (2 * 1.2816 * median)``: a few outliers, of a shared machine, do not
count. A stage that was not measured as a whole is the sum of its layers, whose variances add up.
What varies between steps or devices is not in a profile: see ``skew`` of
:class:`pipesat.risk.robustness.Noise`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

from pipesat.core.errors import BadInput
from pipesat.core.ops import Phase
from pipesat.risk.robustness import Noise

if TYPE_CHECKING:
    from pipesat.core.problem import Problem, Stage
    from pipesat.profile.costs_file import MeasuredCostsModel, Samples
    from pipesat.profile.cut import Statistic
    from pipesat.profile.file import Profile

_DECILE: Final = 1.2816  # 90th percentile of the standard normal
_UNITS_PER_US: Final = (1, 1000)  # microseconds and nanoseconds, as problems have them
_SPLITS: Final = ("even", "balanced")
_STATISTICS: Final[tuple[Statistic, ...]] = ("median", "low", "high")


def noise_of_profile(
    problem: Problem, profile: Profile, skew: float = 0.0, source: str = "profile"
) -> Noise:
    """Return the noise of a problem's stages as a profile has it.

    The stages are those slices of the profile's layers, cut evenly or balanced, whose forward times
    are the problem's.

    Raises
    ------
    BadInput
        If the problem was not made from this profile.
    """
    parts = _layers(problem, profile, source)
    by_op: dict[tuple[int, Phase], float] = {}
    for stage, layers in zip(problem.routes[0].stages, parts, strict=True):
        costs = _costs(profile, layers)
        for phase in ("F", "B", "W"):
            samples = [_samples(c, phase, problem.stages[stage]) for c in costs]
            by_op[stage, phase] = min(1.0, _variation(samples))
    return Noise(0.0, skew, by_op)


def _layers(problem: Problem, profile: Profile, source: str) -> Sequence[range]:
    """Layers of every stage: the cut and statistic that give the problem's forward times."""
    from pipesat.profile.cut import layers_of_stages

    stages = problem.routes[0].stages
    if len(problem.routes) == 1 and len(stages) <= len(profile.layers):
        wanted = [problem.stages[stage].F for stage in stages]
        for split in _SPLITS:
            parts = layers_of_stages(profile, len(stages), split)
            for statistic, units in product(_STATISTICS, _UNITS_PER_US):
                times = (_forward(profile, layers, statistic) * units for layers in parts)
                if all(abs(t - w) <= 1 for t, w in zip(times, wanted, strict=True)):
                    return parts
    raise BadInput(
        "its layers, cut evenly or balanced, do not give the forward times of the problem: "
        "expected the profile that the problem was made from",
        source=source,
    )


def _costs(profile: Profile, layers: range) -> list[MeasuredCostsModel]:
    """Costs of a slice as measured, else those of its layers."""
    for stage in profile.stages:
        if tuple(stage.layers) == (layers.start, layers.stop):
            return [stage.costs]
    return [profile.costs_of(layer) for layer in layers]


def _forward(profile: Profile, layers: range, statistic: Statistic) -> float:
    return sum(float(getattr(costs.F, statistic)) for costs in _costs(profile, layers))


def _samples(costs: MeasuredCostsModel, phase: Phase, stage: Stage) -> Samples:
    """What was measured of a phase; the whole backward where it is never split."""
    if phase == "F":
        return costs.F
    apart = costs.B if phase == "B" else costs.W
    return apart if stage.may_split and apart is not None else costs.BW


def _variation(samples: Sequence[Samples]) -> float:
    """Coefficient of variation of a sum of independent times."""
    median = sum(s.median for s in samples)
    deviations = ((s.high - s.low) / (2 * _DECILE) for s in samples)
    return math.hypot(*deviations) / median if median else 0.0
