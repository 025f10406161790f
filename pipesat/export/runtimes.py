"""What each runtime can run, as data: one record per runtime, read by all that names one.

A new one is a record here, its name in ``core/settings.py``, its exporter in ``EXPORTERS``
(``export/__init__.py``, with a module of its own) and a row in docs/runtimes.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.export.torch.adapt import require_torch_pipeline
from pipesat.export.torch.loaders import loader_for
from pipesat.placement.geometry import Geometry


@dataclass(frozen=True)
class Runtime:
    """A runtime: what of an order it can run, and what it is handed.

    Attributes
    ----------
    title, release
        What its makers call it, and the release that is written for.
    file
        What the file for it is called in a folder.
    any_order
        Whether it runs an order that it is given; else it runs its own.
    first_whole
        Whether the first stage's backward is whole: there is nobody to send a gradient to.
    all_or_none
        Whether all other stages split their backwards, or none.
    pairs
        Kinds of ops that run together as one, ``None``: any two.
    in_turn
        What is to be done by hand for a pair, whose members run in turn otherwise.
    any_placement
        Whether stages may lie anywhere; else in a loop, or in a V of two per rank.
    number_order
        Whether each stage runs its forwards, its backwards and its Ws by number.
    one_switch
        Whether its configuration checkpoints all layers or none.
    takes_layers
        Whether its file says how many layers each stage has.
    built_in
        Hand-written schedules that it has itself.
    """

    name: str
    title: str
    release: str
    file: str
    any_order: bool = True
    first_whole: bool = True
    all_or_none: bool = False
    pairs: tuple[tuple[str, str], ...] | None = (("BW", "F"),)
    in_turn: str = ""
    any_placement: bool = False
    number_order: bool = False
    one_switch: bool = False
    takes_layers: bool = False
    built_in: tuple[str, ...] = ()

    def runs_pair(self, *kinds: str) -> bool:
        """Whether it runs two ops of these kinds as one."""
        return self.pairs is None or tuple(sorted(kinds)) in self.pairs

    def require(self, problem: Problem) -> None:
        """Pass if it can run a pipeline of this shape.

        Raises
        ------
        NotApplicable
            With the reason.
        """
        require_torch_pipeline(problem, self.title)
        if self.any_placement:
            return
        loader = loader_for(problem)
        if loader.schedule_name is None:
            raise NotApplicable(f"{self.title} cannot load this placement: {loader.reason}")


_BY_HAND: Final = "register a function for OVERLAP_F_B: torch runs the two ops of a pair in turn"

_TORCH: Final = Runtime(
    "torch",
    "torch",
    "2.13",
    "schedule.csv",
    in_turn=_BY_HAND,
    any_placement=True,
    built_in=(
        *("1f1b", "gpipe", "interleaved-1f1b", "looped-bfs"),
        *("interleaved-zb", "zb-v", "dualpipev"),
    ),
)
_TITAN: Final = replace(
    _TORCH,
    name="torchtitan",
    title="torchtitan",
    release="0.2.2",
    file="schedule.toml",
    any_placement=False,
    one_switch=True,
    takes_layers=True,
)
_AUTOMODEL: Final = replace(
    _TITAN, name="automodel", title="NeMo AutoModel", release="0.7.0", file="schedule.yaml"
)
_MEGATRON: Final = Runtime(
    "megatron", "Megatron-LM", "0.16.1", "megatron.txt", any_order=False, takes_layers=True
)
_PRIMUS: Final = Runtime(
    "primus",
    "AMD Primus",
    "v26.5.1 (commit fd1eeabb)",
    "primus_order.py",
    first_whole=False,
    pairs=(("B", "F"),),
    number_order=True,
)
_D9D: Final = Runtime("d9d", "d9d", "0.16.0", "d9d_order.py", pairs=())
_JAXPP: Final = Runtime(
    "jaxpp",
    "JaxPP",
    "0.9.2 (commit cf9e3862)",
    "jaxpp_order.py",
    all_or_none=True,
    pairs=None,
    any_placement=True,
    number_order=True,
)
RUNTIMES: Final = {
    runtime.name: runtime
    for runtime in (_TORCH, _TITAN, _AUTOMODEL, _MEGATRON, _PRIMUS, _D9D, _JAXPP)
}
OLD_NAMES: Final = {
    "torch-csv": "torch",
    "nemo-automodel": "automodel",
    "megatron-layout": "megatron",
}
"""What formats were called that are a runtime's: still understood."""


def is_vee(problem: Problem) -> bool:
    """Whether stages lie in a V, of two per rank and on more than one."""
    homes = tuple(problem.stages[stage].device for stage in problem.routes[0].stages)
    ranks = len(problem.devices)
    return ranks > 1 and homes == Geometry("vee", ranks).homes
