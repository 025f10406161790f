"""Amounts of memory with units, on the command line."""

from __future__ import annotations

from pipesat.amounts import amount, amounts, readable

__all__ = ["amount", "amounts", "readable"]
