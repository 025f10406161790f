"""Mutated files through every reader; ``readers.py`` beside ``run.py`` has the mutations' home."""

from __future__ import annotations

from campaign.case import Case


def case(case: Case) -> None:
    from campaign.readers import feed  # loads the tests' world of valid files

    found = feed(case.seed, 10 if case.quick else 60, 60.0)
    case.commands += [command for command, count in found.cases.items() for _ in range(count)]
    case.violations += found.findings
