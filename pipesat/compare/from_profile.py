"""Problems and layers of a measured profile, from what a user says of the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipesat.core.amounts import amount, in_bytes
from pipesat.core.arguments import public, require_once
from pipesat.core.errors import require, said_of
from pipesat.core.settings import (
    Amount,
    Chunks,
    Devices,
    Microbatches,
    OneRoutePlacement,
    Part,
    Ratio,
    Tokens,
    keyed,
)
from pipesat.layers.profile.modes import MODES, ModeChoice, ModeName
from pipesat.layers.profile.static import training_of
from pipesat.problem.building import Split
from pipesat.problem.geometry import chunks_of

if TYPE_CHECKING:
    from pipesat.layers.layer import Layers
    from pipesat.layers.profile.profile_file import LinksModel, Profile
    from pipesat.layers.profile.stages_of import Derived
    from pipesat.problem.problem import Problem

Statistic = Literal["low", "median", "high"]


@public
def problem_from_profile(
    profile: Profile | str | Path,
    devices: Devices,
    microbatches: Microbatches,
    *,
    placement: OneRoutePlacement = "chain",
    chunks: Chunks | None = None,
    split: Split = "even",
    memory: int | str | Sequence[int | str] | None = None,
    training: str | Mapping[str, Any] | None = None,
    reserve: int | str = 0,
    link_delay: Amount | None = None,
    links: LinksModel | str | Path | None = None,
    backward: Literal["auto", "split", "fused", "either"] = "auto",
    split_limit: Ratio | None = None,
    cost: Statistic = "median",
    modes: Sequence[ModeChoice] | None = None,
    copy_bandwidth: int | str | None = None,
    copy_channels: Literal[1, 2] = 2,
    name: str = "",
    details: Callable[[Derived], None] | None = None,
) -> Problem:
    """Make a problem of a measured profile: layers cut into stages, memory added up.

    Parameters
    ----------
    profile
        A profile, or the path of its file.
    microbatches
        How many enter.
    memory
        Capacity as 40GiB, one for all devices or one each; ``None``: unlimited.
    training
        What training adds to the model, as optimizer=sgd,grad_dtype=float32. Keys: optimizer,
        grad_dtype, state_dtype, master_dtype (of a second copy of the weights), receive. The last
        one is a release of torch (torch is the newest, or 2.13, 2.15, installed), or held. With
        held, nothing stays that was sent. ``None``: adamw with the parameters' own types, as in
        torch.
    reserve
        Memory per device for everything else, as 1GiB.
    link_delay
        Microseconds of delay on every link; ``None``: as measured, or 0.
    links
        Measured delays from another file.
    backward
        ``auto``: fused where splitting does not pay, else either.
    split_limit
        Largest (B + W) / BW that may pay, for ``backward`` auto; ``None``: 1.5.
    cost
        Of an op's times: 10th percentile (low), median, or 90th (high).
    modes
        Memory modes of the stages: recompute, offload, drop after B, keep the input only, none;
        ``None``: recompute and offload, as far as the profile has them.
    copy_bandwidth
        Per second between a device and its host, as 20GiB: gives the offload mode; ``None``: as
        measured on a GPU.
    copy_channels
        1: copies out and back share a channel. 2: they have one each.
    details
        Called with what the numbers consist of: costs and layers of every stage, each device's
        static memory by what it is for, why a backward is fused, remarks.

    Raises
    ------
    BadInput
        If there are more stages than layers, a value is wrong, or both ``link_delay`` and ``links``
        are given.
    """
    from pipesat.layers.profile.profile_file import read_links, read_profile
    from pipesat.layers.profile.stages_of import SPLIT_LIMIT, problem_of_profile

    require(
        link_delay is None or links is None,
        "expected it or `links`, not both",
        where="link_delay",
        value=link_delay,
    )
    require(
        split_limit is None or backward == "auto",
        "it decides between backwards only where `backward` is auto",
        where="split_limit",
        value=split_limit,
    )
    measured = read_profile(profile) if isinstance(profile, str | Path) else profile
    if link_delay is None and links is None:
        links = measured.links
    derived = problem_of_profile(
        measured,
        devices=devices,
        microbatches=microbatches,
        placement=placement,
        chunks=chunks_of(placement, chunks),
        split=split,
        memory=None if memory is None else in_bytes("memory", memory),
        training=training_of(training, reserve),
        links=read_links(links) if isinstance(links, str | Path) else links,
        comm=link_delay or 0,
        backward=backward,
        split_limit=split_limit or SPLIT_LIMIT,
        statistic=cost,
        name=name,
        modes=_modes(modes),
        copy_bandwidth=(
            amount("copy_bandwidth", copy_bandwidth)
            if isinstance(copy_bandwidth, str)
            else copy_bandwidth
        ),
        copy_channels=copy_channels,
    )
    if details is not None:
        details(derived)
    return derived.problem


def _modes(given: Sequence[str] | None) -> tuple[ModeName, ...] | None:
    if given is None:
        return None
    require_once("modes", given)
    require(
        "none" not in given or len(given) <= 1,
        f"expected none alone, or some of {', '.join(MODES)}",
        where="modes",
        value=",".join(given),
    )
    return tuple(name for name in MODES if name in given)


@public
def estimate_layers(
    config: str,
    gpu: str,
    *,
    shape: str | Mapping[str, Any] | None = None,
    length: Tokens | None = None,
    batch: Tokens = 1,
    tensor_parallel: Tokens = 1,
    products: Part = 0.7,
    attention: Part = 0.4,
    traffic: Part = 0.7,
) -> Layers:
    """Estimate the layers of a published model without measuring: a roofline.

    From its shape and the GPU's published peaks. A profile on your own GPU replaces it. The layers
    say that they are an estimate, and in what range.

    Parameters
    ----------
    config
        A published model's shape (pipesat profile --list lists them).
    gpu
        a100, h100, h200, b200, l40s or mi300x.
    shape
        Sizes of the model and its run that differ, as layers=64,width=5120: style (gpt or llama),
        layers, width, heads, kv_heads, feed_forward, vocabulary.
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
        Share of the bandwidth of memory, and of links between GPUs that share a layer, that is
        reached.

    Raises
    ------
    BadInput
        If there is no such model or GPU, or a value is out of range.
    """
    from pipesat.layers.profile.published import SIZES, named_gpu, named_shape, with_sizes
    from pipesat.layers.roofline import Efficiency, ModelRun, estimated_layers
    from pipesat.layers.rules import require_amounts

    named, device, sizes = named_shape(config), named_gpu(gpu), keyed("shape", shape, SIZES)
    changed = f" with {', '.join(f'{key}={size}' for key, size in sizes.items())}" * bool(sizes)
    layers = estimated_layers(
        with_sizes(named.shape, sizes),
        device,
        ModelRun(
            length=named.length if length is None else length,
            batch=batch,
            tensor_parallel=tensor_parallel,
        ),
        name=f"{config}{changed} on {gpu}",
        efficiency=Efficiency(products, attention, traffic),
    )
    with said_of(f"{config} on {gpu}: made into layers"):
        require_amounts(layers)
    return layers


@public
def layers_from_profile(
    profile: Profile | str | Path,
    *,
    training: str | Mapping[str, Any] | None = None,
    reserve: int | str = 0,
    cost: Statistic = "median",
) -> Layers:
    """Return a profile's layers, to be cut by :func:`pipesat.plan`.

    Parameters
    ----------
    profile
        What :func:`pipesat.profile` or ``profile_model`` returned, or the path of a profile file.
    training, reserve, cost
        As of :func:`problem_from_profile`.
    """
    from pipesat.layers.from_profile import layers_of_profile
    from pipesat.layers.profile.profile_file import read_profile
    from pipesat.layers.rules import require_amounts

    measured = read_profile(profile) if isinstance(profile, str | Path) else profile
    source = str(profile) if isinstance(profile, str | Path) else "profile"
    layers = layers_of_profile(measured, training_of(training, reserve), statistic=cost)
    with said_of(f"{source}: made into layers"):
        require_amounts(layers)
    return layers
