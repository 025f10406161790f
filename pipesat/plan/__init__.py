"""Partition, placement and order of uneven layers, chosen together: see docs/plan.md."""

from __future__ import annotations
