"""Problems and layers of a measured profile, from what a user says of the training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipesat.profile.file import Profile, read_profile

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.layers.layer import Layers
    from pipesat.placement.geometry import OneRoutePlacement

Statistic = Literal["low", "median", "high"]


def problem_from_profile(
    profile: Profile | str | Path,
    devices: int,
    microbatches: int,
    *,
    placement: OneRoutePlacement = "chain",
    chunks: int = 2,
    split: Literal["even", "balanced"] = "even",
    memory: int | Sequence[int] | None = None,
    comm: int | None = None,
    backward: Literal["auto", "split", "fused", "either"] = "auto",
    split_limit: float = 1.5,
    cost: Statistic = "median",
    name: str = "",
    **training: Any,
) -> Problem:
    """Make a problem of a measured profile: layers cut into stages, memory added up.

    Parameters
    ----------
    profile
        What :func:`pipesat.profile` or ``profile_model`` returned, or the path of a profile file.
    devices, microbatches
        Pipeline ranks, and microbatches.
    placement, chunks
        ``chain``, ``loop`` (``chunks`` stages per device) or ``vee``.
    split
        Layers per stage: ``even``, equally many, or ``balanced``, so that times balance.
    memory
        Bytes per device, one number for all or one each; ``None``: unlimited.
    comm
        Microseconds of delay on every link; ``None``: as the profile measured, or 0.
    backward
        ``auto``: fused where splitting does not pay, else either.
    split_limit
        Largest (B + W) / BW that may pay.
    cost
        Of an op's times: 10th percentile (``low``), ``median``, or 90th (``high``).
    name
        For tables and pictures.
    training
        Fields of :class:`pipesat.profile.static.Training`: ``optimizer="adamw"``,
        ``grad_dtype``, ``state_dtype``, ``master_dtype``, ``receive``, ``reserve`` (bytes).

    Raises
    ------
    BadInput
        If there are more stages than layers, or a value is wrong.
    """
    from pipesat.files.problem_file import parse_problem
    from pipesat.profile.problem import ProblemOptions, problem_of_profile
    from pipesat.profile.static import Training

    measured = profile if isinstance(profile, Profile) else read_profile(profile)
    options = ProblemOptions(
        devices=devices,
        microbatches=microbatches,
        placement=placement,
        chunks=chunks,
        split=split,
        memory=memory if memory is None or isinstance(memory, int) else list(memory),
        training=Training(**training),
        links=measured.links if comm is None else None,
        comm=comm or 0,
        backward=backward,
        split_limit=split_limit,
        statistic=cost,
        name=name,
    )
    return parse_problem(problem_of_profile(measured, options).document, "problem of a profile")


def layers_from_profile(
    profile: Profile | str | Path, *, cost: Statistic = "median", **training: Any
) -> Layers:
    """Return a profile's layers, to be cut by :func:`pipesat.plan`.

    Parameters
    ----------
    profile
        What :func:`pipesat.profile` or ``profile_model`` returned, or the path of a profile file.
    cost
        Of an op's times: 10th percentile (``low``), ``median``, or 90th (``high``).
    training
        Fields of :class:`pipesat.profile.static.Training`: ``optimizer="adamw"``, ...
    """
    from pipesat.layers.from_profile import layers_of_profile
    from pipesat.profile.static import Training

    measured = profile if isinstance(profile, Profile) else read_profile(profile)
    return layers_of_profile(measured, Training(**training), statistic=cost)
