"""Problems and layers of a measured profile, from what a user says of the training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipesat.core.arguments import public
from pipesat.core.errors import BadInput
from pipesat.core.settings import Part, Tokens
from pipesat.placement.geometry import OneRoutePlacement
from pipesat.profile.file import Profile, read_links, read_profile
from pipesat.profile.modes import ModeName

if TYPE_CHECKING:
    from pipesat.core.problem import Problem
    from pipesat.layers.layer import Layers
    from pipesat.profile.file import LinksModel
    from pipesat.profile.problem import Derived

Statistic = Literal["low", "median", "high"]


@public
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
    links: LinksModel | str | Path | None = None,
    backward: Literal["auto", "split", "fused", "either"] = "auto",
    split_limit: float = 1.5,
    cost: Statistic = "median",
    name: str = "",
    modes: Sequence[ModeName] | None = None,
    copy_bandwidth: int | None = None,
    copy_channels: Literal[1, 2] = 2,
    details: Callable[[Derived], None] | None = None,
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
    links
        Measured delays from another file, in place of the profile's.
    backward
        ``auto``: fused where splitting does not pay, else either.
    split_limit
        Largest (B + W) / BW that may pay.
    cost
        Of an op's times: 10th percentile (``low``), ``median``, or 90th (``high``).
    name
        For tables and pictures.
    modes
        Memory modes of the stages, of ``recompute`` and ``offload``; ``None``: those that the
        profile has.
    copy_bandwidth
        Bytes per second between a device and its host; ``None``: as measured on a GPU. Without any
        there is no ``offload``.
    copy_channels
        1: copies out and back share a channel; 2: they have one each.
    details
        Called with what the numbers consist of: costs and layers of every stage, each device's
        static memory by what it is for, why a backward is fused, remarks.
    training
        Fields of :class:`pipesat.profile.static.Training`: ``optimizer="adamw"``,
        ``grad_dtype``, ``state_dtype``, ``master_dtype``, ``receive``, ``reserve`` (bytes).

    Raises
    ------
    BadInput
        If there are more stages than layers, a value is wrong, or both ``comm`` and ``links`` are
        given.
    """
    from pipesat.files.problem_file import parse_problem
    from pipesat.profile.problem import ProblemOptions, problem_of_profile
    from pipesat.profile.static import Training

    if comm is not None and links is not None:
        raise BadInput("expected it or links, not both", where="comm", value=comm)
    measured = profile if isinstance(profile, Profile) else read_profile(profile)
    source = "profile" if isinstance(profile, Profile) else str(profile)
    if comm is None and links is None:
        links = measured.links
    options = ProblemOptions(
        devices=devices,
        microbatches=microbatches,
        placement=placement,
        chunks=chunks,
        split=split,
        memory=memory if memory is None or isinstance(memory, int) else list(memory),
        training=Training(**training),
        links=read_links(links) if isinstance(links, str | Path) else links,
        comm=comm or 0,
        backward=backward,
        split_limit=split_limit,
        statistic=cost,
        name=name,
        modes=None if modes is None else tuple(modes),
        copy_bandwidth=copy_bandwidth,
        copy_channels=copy_channels,
    )
    derived = problem_of_profile(measured, options)
    problem = parse_problem(derived.document, f"{source}: made into a problem")
    if details is not None:
        details(derived)
    return problem


@public
def estimate_layers(
    config: str,
    gpu: str,
    *,
    length: Tokens | None = None,
    batch: Tokens = 1,
    tensor_parallel: Tokens = 1,
    products: Part = 0.7,
    attention: Part = 0.4,
    traffic: Part = 0.7,
) -> Layers:
    """Estimate the layers of a published model without measuring: a roofline.

    From its shape and the GPU's published peaks; a profile on your own GPU replaces it. The layers
    say that they are an estimate, and in what range.

    Parameters
    ----------
    config
        A published model's shape (pipesat profile --list-configs lists them).
    gpu
        a100, h100, h200, b200, l40s or mi300x.
    length
        Tokens per sequence; ``None``: the model's.
    batch
        Sequences per microbatch.
    tensor_parallel
        GPUs that share every layer.
    products
        Share of the GPU's peak that matrix products reach.
    attention
        Share of the GPU's peak that attention reaches.
    traffic
        Share of the memory's bandwidth that is reached.

    Raises
    ------
    BadInput
        If there is no such model or GPU, or a value is out of range.
    """
    from pipesat.layers.file import layers_document, parse_layers
    from pipesat.layers.roofline import Efficiency, Run, estimated_layers
    from pipesat.profile.gpus import named_gpu
    from pipesat.profile.shapes import named_shape

    named, device = named_shape(config), named_gpu(gpu)
    layers = estimated_layers(
        named.shape,
        device,
        Run(
            length=named.length if length is None else length,
            batch=batch,
            tensor_parallel=tensor_parallel,
        ),
        name=f"{config} on {gpu}",
        efficiency=Efficiency(products, attention, traffic),
    )
    parse_layers(layers_document(layers), f"{config} on {gpu}: made into layers")
    return layers


@public
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
    from pipesat.layers.file import layers_document, parse_layers
    from pipesat.layers.from_profile import layers_of_profile
    from pipesat.profile.static import Training

    measured = profile if isinstance(profile, Profile) else read_profile(profile)
    source = "profile" if isinstance(profile, Profile) else str(profile)
    layers = layers_of_profile(measured, Training(**training), statistic=cost)
    parse_layers(layers_document(layers), f"{source}: made into layers")
    return layers
