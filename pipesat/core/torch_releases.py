"""torch's releases: what its pipeline runtime holds, writes and errs in, by release."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import Final, Literal, TypeAlias, get_args

from pipesat.core.errors import BadInput, require
from pipesat.core.settings import OnTorch

Version: TypeAlias = Literal["2.13", "2.15"]
"""Releases whose facts are known, the newest last."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """What is known of a release of torch and its patches.

    Attributes
    ----------
    version
        As 2.15, without a patch.
    keeps_buffers
        Whether a stage has receive buffers of every microbatch for the whole run; else a buffer is
        made directly before its receive.
    waits
        Whether ``compute_comms`` dumps have ``WAIT_SEND_F``, ``WAIT_SEND_B`` and
        ``WAIT_REDUCE_GRAD``.
    per_edge
        The environment variable that gives each directed pair of ranks a communicator of its own;
        empty: there is none.
    eval_divides
        Whether ``eval()`` divides gradients that are there by the number of microbatches, in the
        runtime that reads a CSV.
    eval_fails
        Whether ``eval()`` fails on a rank that holds two neighbouring stages.
    active_stages
        Whether the most stages that FSDP holds whole is an argument, ``max_active_stages``; else
        it is 3.
    """

    version: Version
    keeps_buffers: bool
    waits: bool
    per_edge: str
    eval_divides: bool
    eval_fails: bool
    active_stages: bool

    def __str__(self) -> str:
        return f"torch {self.version}"


RELEASES: Final = (
    Release(
        version="2.13",
        keeps_buffers=True,
        waits=False,
        per_edge="",
        eval_divides=True,
        eval_fails=True,
        active_stages=False,
    ),
    Release(
        version="2.15",
        keeps_buffers=False,
        waits=True,
        per_edge="TORCH_DISTRIBUTED_PIPELINE_PER_EDGE_P2P",
        eval_divides=False,
        eval_fails=True,
        active_stages=True,
    ),
)
NEWEST: Final = RELEASES[-1]
INSTALLED: Final = "installed"
TESTED: Final = " and ".join(get_args(Version))


def release_named(version: str | None = None, where: str = "version") -> Release:
    """Return the release of that version, with or without a patch; ``None``: the newest.

    Raises
    ------
    BadInput
        If nothing is known of it, or ``installed`` is asked for and there is no torch.
    """
    if version is None:
        return NEWEST
    named = version.rpartition(" ")[2]  # of "torchtitan on torch 2.15", as results say it
    try:
        found = metadata.version("torch") if named == INSTALLED else named
    except metadata.PackageNotFoundError:
        found = "none"
    for release in RELEASES:
        if found.split("+")[0].split(".")[:2] == release.version.split("."):
            return release
    raise BadInput(
        f"expected torch {', '.join(get_args(Version))} or {INSTALLED}",
        where=where,
        value=version if found == named else f"{version}: {found}",
    )


def release_for(target: str | None, version: str | None) -> Release | None:
    """Return torch's release for a runtime on torch; ``None``: it is no such one.

    Raises
    ------
    BadInput
        If a version is given of another runtime.
    """
    if target in get_args(OnTorch):
        return release_named(version)
    require(
        version is None,
        f"expected it with {', '.join(get_args(OnTorch))} alone: torch's release",
        where="version",
        value=version,
    )
    return None
