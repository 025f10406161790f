"""Literals that may be known beforehand, summed up and joined."""

from __future__ import annotations

from typing import TypeAlias, cast

from ortools.sat.python import cp_model

from pipesat.core.ops import Kind

Literal: TypeAlias = cp_model.IntVar | bool
"""A Boolean variable (or its negation), or a known truth value."""

_LEAST = -(1 << 62)


class Sum:
    """A constant plus literals with coefficients."""

    def __init__(self, constant: int) -> None:
        self.constant = constant
        self.literals: list[cp_model.IntVar] = []
        self.coefficients: list[int] = []

    def add(self, coefficient: int, literal: Literal) -> None:
        """Add a term."""
        if isinstance(literal, bool):
            self.constant += coefficient * literal
        elif coefficient:
            self.literals.append(literal)
            self.coefficients.append(coefficient)

    def add_all(self, other: Sum) -> None:
        """Add another sum."""
        self.constant += other.constant
        self.literals += other.literals
        self.coefficients += other.coefficients

    def at_most(self, cp: cp_model.CpModel, bound: int, condition: Literal) -> None:
        """Require ``sum <= bound`` wherever ``condition`` holds."""
        if sum(c for c in self.coefficients if c > 0) + self.constant <= bound:
            return
        terms = cp_model.LinearExpr.weighted_sum(self.literals, self.coefficients)
        constraint = cp.add_linear_constraint(terms, _LEAST, bound - self.constant)
        if not isinstance(condition, bool):
            constraint.only_enforce_if(condition)


def either(split: Literal) -> list[tuple[Kind, Literal]]:
    """What a backward may run as, and on which condition, if ``split`` says whether it is split."""
    return [("B", split), ("BW", not split if isinstance(split, bool) else cast(Literal, ~split))]


def conjunction(cp: cp_model.CpModel, x: Literal, y: Literal) -> Literal:
    """Literal for "x and y"."""
    if x is False or y is False:
        return False
    if x is True or y is True:
        return y if x is True else x
    both = cp.new_bool_var("")
    cp.add_implication(both, x)
    cp.add_implication(both, y)
    cp.add_bool_or([both, ~x, ~y])
    return both
