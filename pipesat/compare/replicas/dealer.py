"""Dealing the sequences of one training step after another, in milliseconds, without the solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from pipesat.compare.replicas.deal import Deal, Load, deal_of
from pipesat.compare.replicas.dealing_rules import RULES
from pipesat.compare.replicas.exchanges import ExchangeRounds, by_shares
from pipesat.compare.replicas.replay import Replay, costs_of_lengths, problem_of, require_exact
from pipesat.core.arrays import Floats, Ints
from pipesat.core.errors import BadInput, NotApplicable, require, require_applicable
from pipesat.core.names import named
from pipesat.heuristics import BASELINES
from pipesat.problem.lengths import Factors
from pipesat.problem.plain_problems import without_modes
from pipesat.problem.problem import Problem, Route

_ROUNDS: Final = 60
_PATIENCE: Final = 120  # rounds in vain, at most, before sequences change places at random
_NARROW, _WIDE = 256, 1024  # replays at once: for few replicas, and for many


class TriedDeal(NamedTuple):
    """What a rule's deal takes, or why there is none."""

    name: str
    value: int | None
    why_not: str = ""


class Dealer:
    """Deals sequences to replicas and microbatches; imports numpy alone, never the solver.

    Parameters
    ----------
    problem
        One replica: its stages, links, memory, and how many microbatches it has.
    replicas
        How many there are.
    reference
        The length whose times and memory the stages have.
    quadratic
        Share of the reference's time that grows with the square of the length.
    tokens
        The most tokens in a microbatch; ``None``: as many as memory admits.
    schedule
        The name of a hand-written schedule whose order does not depend on times.

    Raises
    ------
    BadInput, NotApplicable
        If there is no such schedule, or it does not apply.
    """

    def __init__(
        self,
        problem: Problem,
        replicas: int,
        *,
        reference: int,
        quadratic: Fraction | float = 0,
        tokens: int | None = None,
        schedule: str = "1f1b",
    ) -> None:
        self.problem, self.replicas, self.tokens = problem, replicas, tokens
        self.reference, self.quadratic = reference, quadratic
        self._known: dict[int, Factors] = {}
        self.replay = replay_of(problem, schedule, problem.routes[0].microbatches)
        typical = costs_of_lengths(problem, [reference], reference, 0)[0, self.replay.columns]
        self._typical = typical.astype(float)
        self._shares = best_shares(self.replay, self._typical)

    def deal(
        self,
        lengths: Sequence[int],
        *,
        seed: int = 0,
        rounds: int = _ROUNDS,
    ) -> Deal:
        """Deal the sequences of one step; ``deal(...).replicas`` has every one exactly once.

        One seed gives one answer on every machine, so each rank may deal for itself.

        Raises
        ------
        BadInput
            If there are fewer sequences than microbatches, or one is too long or no length.
        NotApplicable
            If no deal was found that fits.
        """
        lengths = [int(n) if isinstance(n, np.integer) else n for n in lengths]
        about = (lengths, self.reference, self.quadratic, self._known)
        costs = costs_of_lengths(self.problem, *about)
        load = checked_load(self.replay, costs, lengths, self.tokens, self.replicas)
        shares = self._shares
        if shares.max() > load.largest_share:
            shares = best_shares(self.replay, self._typical, load.largest_share)
        best, _ = best_of_rules(load, shares)
        left = iter(range(rounds))
        best = searched(best, np.random.default_rng(seed), lambda: next(left, None) is None)
        require_applicable(best.fits, "no deal was found that fits into memory and tokens")
        return best


def checked_load(
    replay: Replay, costs: Ints, lengths: Sequence[int], cap: int | None, replicas: int
) -> Load:
    """Return what is to be dealt, of costs in all columns.

    Raises
    ------
    BadInput
        If sequences are fewer than microbatches, too long for one, or sums too large.
    """
    wanted = replicas * replay.places
    require(
        len(costs) >= wanted,
        f"{len(costs)} sequences, expected at least {wanted}: {replicas} replicas with "
        f"{replay.places} microbatches each",
        where="lengths",
    )
    for number, length in enumerate(lengths if cap is not None else ()):
        if length > (cap or 0):
            raise BadInput(
                f"expected at most {cap} tokens, which a microbatch may have (tokens)",
                where=f"lengths[{number}]",
                value=length,
            )
    require_exact(costs)
    tokens = np.array(lengths, dtype=np.int64)[:, None]
    return Load(replay, np.hstack([costs[:, replay.columns], tokens]), cap, replicas)


def replay_of(problem: Problem, name: str, microbatches: int) -> Replay:
    """Return the replay of a hand-written schedule on so many microbatches.

    Raises
    ------
    BadInput
        If there is no such schedule, or the problem has several routes.
    NotApplicable
        If it does not apply, or puts ops in another order where microbatches take other times.
    """
    name = named("schedule", name, BASELINES)
    require(len(problem.routes) == 1, "expected a problem with one route", where="routes")
    route = Route(problem.routes[0].stages, microbatches)
    plain = replace(without_modes(problem), routes=(route,), order="free")
    order = BASELINES[name](plain).order
    unlike = costs_of_lengths(plain, [1 + n * 7 % 5 for n in range(microbatches)], 4, 0)
    require_applicable(
        BASELINES[name](problem_of(plain, unlike)).order == order,
        f"{name}: its order depends on what microbatches take, so replicas would differ",
    )
    try:
        return Replay(plain, order)
    except NotApplicable as error:
        raise NotApplicable(f"{name}: {error}") from None


def best_of_rules(
    load: Load, shares: Floats, skip: Callable[[], bool] = lambda: False
) -> tuple[Deal, list[TriedDeal]]:
    """Return the best deal of all rules and of our own start, and what each rule's takes.

    A deal that fits is better than one that does not. ``skip`` says that time is over for rules.
    """
    found, tried = [deal_of(load, by_shares(load, shares))], []
    for name, rule in RULES.items():
        if skip():
            tried.append(TriedDeal(name, None, "time was over"))
            continue
        try:
            deal = deal_of(load, rule(load))
        except NotApplicable as error:
            tried.append(TriedDeal(name, None, str(error)))
            continue
        why_not = "" if deal.fits else "exceeds memory or tokens"
        tried.append(TriedDeal(name, deal.value if deal.fits else None, why_not))
        found.append(deal)
    return min(found, key=_rank), tried


def searched(
    deal: Deal, chance: np.random.Generator, over: Callable[[], bool], enough: int = 0
) -> Deal:
    """Return the best deal that exchanges lead to from one, until time is over or it is enough."""
    width = _NARROW if deal.load.replicas * deal.load.replay.places < 1024 else _WIDE
    search, best, vain = ExchangeRounds(deal, chance, width), deal, 0
    patience = min(_PATIENCE, 2 * len(deal.where))
    while not over() and (best.value > enough or not best.fits):
        before = search.deal.value
        search.round()
        vain = 0 if search.deal.value < before else vain + 1
        if _rank(search.deal) < _rank(best) or search.deal is best:
            best = search.deal
        if vain > patience:
            search, vain = ExchangeRounds(best, chance, width).kicked(), 0
    return best


def _rank(deal: Deal) -> tuple[bool, int]:
    return not deal.fits, deal.value


_STEPS: Final = 400
_OPS: Final = 200_000  # to be timed in all; of long replicas it takes fewer steps
_RATE: Final = 0.3
_LEAST: Final = 1e-3  # of an equal share


def best_shares(replay: Replay, costs: Floats, most: float = 1.0) -> Floats:
    """Return the share of each of a replica's microbatches, in the order in which they enter.

    Equal ones are not the best: small ones that enter first and last shorten a pipeline's warm-up
    and cool-down. With shares c of a replica's work, the makespan is the longest of many paths,
    each linear in c, so the best shares are those of a convex programme: a game against the path.
    Multiplicative weights (Freund and Schapire 1999) play it: what lies on the longest path shrinks
    a little.

    Parameters
    ----------
    costs
        What all of a replica's sequences take together, in the replay's columns.
    most
        The largest share that a microbatch may have.
    """
    m = replay.places
    most, costs = max(most, 1 / m), costs.astype(float) / max(float(costs.max()), 1.0)
    best = mean = here = np.full(m, 1 / m)
    least = np.inf
    for step in range(min(_STEPS, 1 + _OPS // len(replay.ops))):
        lengths = costs[:, None, None] * here[None, :, None]
        value = replay.ends(lengths)[replay.last].max()
        if value < least:
            least, best = value, here
        on_path = replay.longest_path(lengths) @ costs
        spread = np.ptp(on_path)
        if not spread:
            break
        rate = _RATE / np.sqrt(step + 1)
        here = within(here * np.exp(-rate * (on_path - on_path.min()) / spread), most)
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
    return shares / shares.sum()
