"""The line "Searched": how many lanes there were, and which share of the cores they used."""

from __future__ import annotations

import pytest

from pipesat.compare.result import Result
from tests.support.problems import chain


@pytest.mark.parametrize(
    ("workers", "lanes", "cpu_s", "said"),
    [
        (1, 1, 9.0, "10.0 s"),
        (2, 0, 0.0, "10.0 s"),  # a result of an earlier version
        (2, 2, 19.0, "10.0 s, 2 lanes, 95 % of 2 cores used"),
        (2, 1, 10.0, "10.0 s, 1 lane, 50 % of 2 cores used"),
        (2, 2, 21.0, "10.0 s, 2 lanes, 100 % of 2 cores used"),  # of this process, more than that
    ],
)
def test_lanes_and_the_share_of_the_cores(
    workers: int, lanes: int, cpu_s: float, said: str
) -> None:
    result = Result(
        *(chain(2, 2), "unknown", "makespan", None, None, None, 10.0, 0),
        workers=workers,
        lanes=lanes,
        cpu_s=cpu_s,
    )
    assert dict(result.facts())["Searched"] == said
    document = result.document()
    assert (document["lanes"], document["cpu_s"]) == (lanes, cpu_s)
