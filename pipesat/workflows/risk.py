"""A schedule's value where links queue and times vary, compared with the best baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.core.schedule import Objective
from pipesat.core.settings import Seed
from pipesat.core.showing import Displayed, Facts
from pipesat.risk.links import Links
from pipesat.workflows.hand_written import best_orders
from pipesat.workflows.schedules import valid_schedule

if TYPE_CHECKING:
    from pipesat.core.ops import Phase
    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.profile.file import Profile
    from pipesat.risk.report import LinksRow, NoiseRow
    from pipesat.risk.robustness import Noise

OURS = "schedule"
NOISE = 0.05
MOST_SAMPLES: Final = 100_000
MOST_BASELINES: Final = 1000


@dataclass(frozen=True, repr=False, slots=True)
class Risk(Displayed):
    """Values of a schedule, ``schedule``, and of baselines: with queued links, and with noise."""

    links: list[LinksRow]
    noise: list[NoiseRow]
    objective: Objective

    def facts(self) -> Facts:
        """Return what the schedule has in each case."""
        links, spread = self.links[0], self.noise[0].spread
        return [
            (f"{self.objective}, links independent", str(links.independent)),
            ("transfers one at a time per pair", str(links.pair)),
            ("transfers one at a time per rank", str(links.rank)),
            ("with noise, median", f"{spread.p50:.1f}"),
            ("with noise, 95th percentile", f"{spread.p95:.1f}"),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per order; the baselines' ``gain`` is what the schedule saves of theirs."""
        return [
            {
                "name": links.name,
                "independent": links.independent,
                "pair": links.pair,
                "rank": links.rank,
                **asdict(noise.spread),
                **{
                    f"gain_{key}": value
                    for key, value in ({} if noise.gain is None else asdict(noise.gain)).items()
                },
            }
            for links, noise in zip(self.links, self.noise, strict=True)
        ]


@public
def risk(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    *,
    noise: float | Mapping[Phase, float] | None = None,
    profile: Profile | str | Path | None = None,
    skew: float = 0.0,
    links: Links = "independent",
    samples: int = 200,
    seed: Seed = 0,
    baselines: int = 3,
    objective: Objective = "makespan",
) -> Risk:
    """Value a schedule where links queue, and where times vary, and the best baselines with it.

    Parameters
    ----------
    problem
        The problem that it is a schedule of.
    schedule
        A schedule, the result that has it, or the path of a schedule file.
    noise
        Standard deviation of each op's time relative to its mean, 0.05 if not given, or one each
        for ``F``, ``B`` (BW's too) and ``W``.
    profile
        The profile that the problem was made from: the noise is as measured.
    skew
        Standard deviation between devices, for a whole step.
    links
        How transfers queue while times vary: ``independent``, ``pair`` (one at a time between two
        ranks, as NCCL runs torch's) or ``rank``.
    samples, seed
        How often times are drawn, and from which seed.
    baselines
        Compare with so many, the best that fit.
    objective
        ``makespan`` or ``span``.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    BadInput
        If noise and profile are both given, or a share is out of range.
    """
    from pipesat.risk.report import links_risk, noise_risk

    for name, value, least, most in (
        ("samples", samples, 1, MOST_SAMPLES),
        ("baselines", baselines, 0, MOST_BASELINES),
    ):
        if not least <= value <= most:
            raise BadInput(f"expected {least} to {most}", where=name, value=value)
    variation = _noise(problem, noise, profile, skew)
    orders = {OURS: valid_schedule(problem, schedule).order}
    orders |= best_orders(problem, objective, baselines)
    return Risk(
        links_risk(problem, orders, objective),
        noise_risk(
            problem, orders, variation, samples=samples, seed=seed, objective=objective, links=links
        ),
        objective,
    )


def _noise(
    problem: Problem,
    given: float | Mapping[Phase, float] | None,
    profile: Profile | str | Path | None,
    skew: float,
) -> Noise:
    from pipesat.risk.robustness import Noise

    if profile is not None:
        from pipesat.profile.file import read_profile
        from pipesat.risk.measured_noise import noise_of_profile

        if given is not None:
            raise BadInput("expected it, or a profile, not both", where="noise", value=given)
        source = "the profile"
        if isinstance(profile, str | Path):
            source, profile = str(profile), read_profile(profile)
        return noise_of_profile(problem, profile, skew, source)
    if not isinstance(given, Mapping):
        return Noise(NOISE if given is None else given, skew)
    by_op = {
        (stage, phase): share
        for stage in range(len(problem.stages))
        for phase, share in given.items()
    }
    return Noise(0.0, skew, by_op)
