"""Variants: how a microbatch of a class may run on a stage.

A variant is a memory mode, with the backward split into B and W or fused as BW. What a mode and a
class make of the stage's amounts becomes times and held memory here, once: rules, bounds and models
read them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeAlias

from pipesat.problem.problem import Problem, once
from pipesat.problem.stage import Stage

Key: TypeAlias = tuple[int, int]
"""A stage and a microbatch of it: what runs in a variant."""


class Variant(NamedTuple):
    """A memory mode with its backward split or fused: times and held memory of one microbatch.

    With a = held_after_F, w = held_after_B and x = held_in_backward: F takes a; B holds max(a, w,
    x) while it runs and w after it; W frees w; BW holds max(a, x) while it runs and nothing after
    it. While an offloaded microbatch is copied out, a is held, and again from the start of the copy
    back; in between only ``rest``.

    Attributes
    ----------
    mode, split, alone
        Number of the mode (0: keep), whether B and W run apart, and whether F runs alone: without a
        backward, F frees what it takes.
    forward, backward, weight
        Times of F, of B or BW, and of W (0 if fused); 0 for what does not run.
    held, most, after
        Memory after F, while the backward runs, and from its end until that of W.
    offloads, rest, out, back
        Whether it is copied to the host; what stays on the device between the copies, without them
        all of ``held``; the times of both copies.
    """

    mode: int
    split: bool
    alone: bool
    forward: int
    backward: int
    weight: int
    held: int
    most: int
    after: int
    offloads: bool
    rest: int
    out: int
    back: int

    @property
    def work(self) -> int:
        """Compute time of F and the whole backward."""
        return self.forward + self.backward + self.weight

    @property
    def copied(self) -> int:
        """Memory that is free between the copies."""
        return self.held - self.rest

    @property
    def surely_held(self) -> int:
        """Most that is held while F or the backward runs: an instant holds nothing."""
        return max(self.held if self.forward else 0, self.most if self.backward else 0)


def variant_of(amounts: Stage, mode: int = 0, *, split: bool) -> Variant:
    """Return the variant of a stage's amounts in a mode, for a class."""
    alone = not amounts.has_backward
    if alone:
        amounts, split = replace(amounts, B=0, W=0, BW=0, held_in_backward=0), False
    a, copies = amounts.held_after_F, amounts.offload
    after = amounts.held_after_B if split else 0
    return Variant(
        mode=mode,
        split=split,
        alone=alone,
        forward=amounts.F,
        backward=amounts.B if split else amounts.BW,
        weight=amounts.W if split else 0,
        held=a,
        most=max(a, after, amounts.held_in_backward),
        after=after,
        offloads=copies is not None,
        rest=a if copies is None else copies.held,
        out=0 if copies is None else copies.time_out,
        back=0 if copies is None else copies.time_in,
    )


@once
def variants(problem: Problem, stage: int, of_class: int) -> tuple[Variant, ...]:
    """All variants of a stage for a class of its route: by mode, the split one first."""
    resulting = [(problem.resulting(stage, n, of_class), n) for n in problem.modes_of(stage)]
    return tuple(
        variant_of(amounts, mode, split=split)
        for amounts, mode in resulting
        for split in (True, False)
        if (amounts.may_split if split else not amounts.may_split or amounts.may_fuse)
    )
