"""A schedule's value where links queue and times vary, compared with the best baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipesat.core.amounts import time_cell, time_text, unit_of_cells
from pipesat.core.arguments import public
from pipesat.core.claims import difference, percent
from pipesat.core.errors import BadInput
from pipesat.core.schedule import Objective
from pipesat.core.settings import Seed
from pipesat.core.showing import Column, Displayed, Facts, Table
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
    problem: Problem
    drawn: str = ""

    def facts(self) -> Facts:
        """Return what the schedule has in each case."""
        links, spread, most = self.links[0], self.noise[0].spread, self.links[0].most_waiting
        unit = self.problem.time_unit

        def lost(value: int) -> str:
            share = percent(difference(value, links.independent) or 0.0, sign=True)
            return f"{time_text(value, unit)} ({share})"

        where = ""
        if most is not None:
            a, b = (self.problem.device_name(rank) for rank in most.ranks)
            where = f"{a} with {b}, {time_text(most.waiting, unit)} in sum"
        half, late = (time_text(round(value), unit) for value in (spread.p50, spread.p95))
        return [
            ("Links", f"{self.objective} {time_text(links.independent, unit)} if they are free"),
            ("Per pair", f"{lost(links.pair)} if a pair of ranks sends one at a time (NCCL)"),
            ("Per rank", f"{lost(links.rank)} if a rank does (with device_id)"),
            ("Waiting", f"most, per pair: {where}" if where else ""),
            ("Noise", f"{half} in half of all steps, {late} in 95 %"),
            ("Drawn", self.drawn),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield a table of links and one of noise, each with all orders."""
        unit = self.problem.time_unit
        shown = partial(time_cell, unit=unit)
        queues = ("independent\nlinks", "per pair", "lost", "per rank", "lost")
        lines = [
            [row.name, shown(row.independent), *self._queued(row, shown)] for row in self.links
        ]
        columns = [Column("", number=False), *map(Column, queues)]
        yield Table(columns, lines, notes=[f"times in {unit_of_cells(unit)}"] if unit else [])
        gains = ("gain,\nno noise", "gain\np50", "gain\np5", "ahead in")
        lines = []
        for entry in self.noise:
            spread, gain = entry.spread, entry.gain
            told = () if gain is None else (gain.nominal, gain.p50, gain.p05, gain.ahead)
            values = map(shown, (spread.nominal, spread.p50, spread.p95))
            lines.append([entry.name, *values, *(map(percent, told) if told else [""] * 4)])
        notes = ["gain: what schedule saves of a baseline's time"]
        heads = ("no noise", "p50", "p95", *gains)
        yield Table([Column("", number=False), *map(Column, heads)], lines, notes=notes)

    def _queued(self, row: LinksRow, shown: Callable[[float | None], str]) -> list[str]:
        """What queues make of a row's value, each with the share that is lost."""
        each = ((value, difference(value, row.independent)) for value in (row.pair, row.rank))
        return [text for value, lost in each for text in (shown(value), percent(lost or 0.0))]

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
        problem,
        f"noise {_words(noise, profile)}, skew {percent(skew)}, links {links}, {samples} samples, "
        f"seed {seed}",
    )


def _words(noise: float | Mapping[Phase, float] | None, profile: object) -> str:
    if profile is not None:
        return "as measured"
    if isinstance(noise, Mapping):
        return ", ".join(f"{phase} {percent(share)}" for phase, share in noise.items())
    return percent(NOISE if noise is None else noise)


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
