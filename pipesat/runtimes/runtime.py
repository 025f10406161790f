"""What a runtime can run, as a record that all read, and problems reduced to that.

The optimum of a reduced problem is optimal for what will run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from pipesat.core.errors import NotApplicable, require_applicable
from pipesat.problem.ops import OpKind
from pipesat.problem.problem import MicrobatchClass, Mode, Overlap, Problem, Route
from pipesat.problem.problem_checks import changed
from pipesat.runtimes.options import Options, loader_for
from pipesat.runtimes.torch.adapt import require_torch_pipeline

if TYPE_CHECKING:
    from pipesat.runtimes.reading import Meaning
    from pipesat.schedule.schedule import Exported, Schedule

    Write: TypeAlias = Callable[["Runtime", Problem, Schedule, Options], Exported]
    Read: TypeAlias = Callable[["Runtime", Problem, Exported, Options], Meaning]

T = TypeVar("T")


@dataclass(frozen=True)
class Runtime:
    """A runtime: what of an order it can run, and what it is handed.

    Attributes
    ----------
    title, release
        What its makers call it, and the release that is written for.
    file
        What the file for it is called in a folder.
    write, read
        Writes it; reads what was written by the rules that are known of the program.
    takes
        What of :class:`~pipesat.runtimes.options.Options` it can say.
    any_order
        Whether it runs an order that it is given; else it runs its own.
    first_whole
        Whether the first stage's backward is whole: there is no one to send a gradient to.
    all_or_none
        Whether all other stages split their backwards, or none.
    pairs
        Kinds of ops that run together as one, ``None``: any two.
    in_turn
        What is to be done by hand for a pair, whose members run in turn otherwise.
    splits
        Whether B and W may run apart.
    any_placement
        Whether stages may lie anywhere; else in a loop, or in a V of two per rank.
    chunks
        How many stages each rank has; ``None``: as many as the placement says.
    one_rank
        Whether it runs a pipeline of one rank.
    number_order
        What each stage runs by number: forwards, backwards, Ws, as in ``FBW``.
    shapes
        Of microbatches: each its own, all padded to one, or all have one.
    modes
        Names of the memory modes that it runs, for each (stage, microbatch) of its own. ``None``:
        whatever recomputes with its backward whole, as a file beside the order says.
    one_switch
        Whether its configuration checkpoints all layers or none.
    takes_layers
        Whether its file says how many layers each stage has.
    built_in
        Hand-written schedules that it has itself.
    refuse
        Raises where its configuration cannot say a problem's stages.
    """

    name: str
    title: str
    release: str
    file: str
    write: Write
    read: Read
    takes: tuple[str, ...] = ("exact", "remark")
    any_order: bool = True
    first_whole: bool = True
    all_or_none: bool = False
    pairs: tuple[tuple[str, str], ...] | None = (("BW", "F"),)
    in_turn: str = ""
    splits: bool = True
    any_placement: bool = False
    chunks: int | None = None
    one_rank: bool = True
    number_order: str = ""
    shapes: Literal["own", "padded", "one"] = "padded"
    modes: tuple[str, ...] | None = ()
    one_switch: bool = False
    takes_layers: bool = False
    built_in: tuple[str, ...] = ()
    refuse: Callable[[Problem, Options], object] = lambda *_: None

    @property
    def in_python(self) -> bool:
        """Whether the order itself stands in a Python file; else in torch's CSV, or nowhere."""
        return self.file.endswith("_order.py")

    def runs_pair(self, *kinds: str) -> bool:
        """Whether it runs two ops of these kinds as one."""
        return self.pairs is None or tuple(sorted(kinds)) in self.pairs

    def require(self, problem: Problem) -> None:
        """Pass if it can run a pipeline of this shape."""
        require_torch_pipeline(problem, self.title)
        ranks, stages = len(problem.devices), len(problem.stages)
        require_applicable(
            self.chunks is None or stages == self.chunks * ranks,
            f"{self.title} runs exactly {self.chunks} stages on every rank, here are {stages} "
            f"on {ranks}",
        )
        require_applicable(
            self.shapes != "one" or not problem.has_lists or problem.alike,
            f"{self.title} runs microbatches of one shape, and these differ",
        )
        require_applicable(
            ranks > 1 or self.one_rank, f"{self.title} runs no pipeline on a single rank"
        )
        if not self.any_placement:
            loader = loader_for(problem)
            require_applicable(
                loader.schedule_name is not None,
                f"{self.title} cannot load this placement: {loader.reason}",
            )

    def require_modes(self, modes: Iterable[Mode]) -> None:
        """Pass if it runs these memory modes: it knows them by their names, or all alike."""
        for mode in modes:
            if self.modes is None and (mode.offload is not None or mode.backward == "split"):
                how = "offloads within its ops" if mode.offload else "would recompute twice"
                raise NotApplicable(
                    f"{self.title} {how}, so its times are others in the mode {mode.name}: leave "
                    "the mode out, or solve without a target"
                )
            if self.modes is not None and (mode.name not in self.modes or mode.offload):
                known = f"runs the memory modes {', '.join(self.modes)} alone, not {mode.name}"
                none = (
                    "is told no memory modes: recomputation and offloading are set in its own "
                    "configuration, for all microbatches"
                )
                raise NotApplicable(f"{self.title} {known if self.modes else none}")

    def require_of(self, problem: Problem, schedule: Schedule) -> None:
        """Pass if it can run a pipeline of this shape, in the modes that a schedule uses."""
        self.require(problem)
        used = schedule.modes.items()
        self.require_modes(problem.stages[stage].modes[mode - 1] for (stage, _), mode in used)

    def why_not(self, problem: Problem, options: Options) -> str | None:
        """Why it runs no order of a problem that its rules restrict; ``None``: it runs them all."""
        try:
            self.require(problem)
            self.refuse(problem, options)
        except NotApplicable as error:
            return str(error)
        return None


def restricted(problem: Problem, runtime: Runtime) -> tuple[Problem, ...]:
    """Return the problem with what a runtime cannot run ruled out, in each way to do so.

    Every schedule of each way is one of the problem, and is exported without a loss (for the order
    of microbatches that are alike, docs/proofs/model.md; where they differ, Ws may come in another
    order than a runtime of ``number_order`` needs). What it runs is the union: two ways where it
    splits all backwards but the first stage's or none, and neither is surely as good.
    """
    runtime.require_modes(mode for stage in problem.stages for mode in stage.modes)
    runtime.require(problem)
    first = problem.routes[0].stages[0]
    numbers = range(len(problem.stages))
    for stage in [first] * runtime.first_whole if runtime.splits else numbers:
        if not problem.stages[stage].may_fuse:
            whose = "the first stage's" if runtime.splits else "every"
            raise NotApplicable(
                f'stage {stage} says "backward": "split", but {runtime.title} runs {whose} '
                'backward whole: say "either" or "fused"'
            )
    if runtime.number_order and not problem.alike:
        problem = replace(problem, order="given", routes=tuple(map(_as_list, problem.routes)))
    whole = {"backward": "fused"}
    ways = [{}] if runtime.splits else [whole]
    if runtime.all_or_none:
        ways = _all_or_none(problem, first, runtime)
    own = whole if runtime.first_whole or not runtime.splits else {}
    backwards = ([own if number == first else way for number in numbers] for way in ways)
    if runtime.modes is None and problem.has_modes:
        fused = [tuple(replace(m, backward="fused") for m in s.modes) for s in problem.stages]
        problem = changed(problem, [{"modes": modes} for modes in fused])
    return tuple(with_pairs_of(changed(problem, each), runtime) for each in backwards)


def _as_list(route: Route) -> Route:
    """Return a route whose microbatches are a list: an order is a rule of lists alone."""
    if route.classes is not None:
        return route
    return replace(route, classes=(0,) * route.microbatches, definitions=(MicrobatchClass("all"),))


def with_pairs_of(problem: Problem, runtime: Runtime) -> Problem:
    """Return the problem with those pairs alone that a runtime runs as one."""
    overlap = problem.overlap
    if overlap is None or runtime.pairs is None:
        return problem

    def kept(listed: Mapping[tuple[OpKind, OpKind], T]) -> dict[tuple[OpKind, OpKind], T]:
        return {
            two: took for two, took in listed.items() if runtime.runs_pair(two[0][1], two[1][1])
        }

    factor = overlap.factor if runtime.runs_pair("BW", "F") else None
    pairs = Overlap(factor, kept(overlap.times), kept(overlap.factors))
    return changed(problem, overlap=pairs if factor or pairs.listed else None)


def _all_or_none(problem: Problem, first: int, runtime: Runtime) -> list[dict[str, str]]:
    """Return what all stages but the first say; one way where no other can be shorter."""
    others = [stage for s, stage in enumerate(problem.stages) if s != first]
    split, whole = (all(getattr(s, may) for s in others) for may in ("may_split", "may_fuse"))
    require_applicable(
        split or whole,
        f"{runtime.title} splits all backwards but the first stage's or none, and here one "
        'stage says "backward": "split", another "fused": say "either"',
    )
    costs_nothing = problem.plain and all(
        stage.BW >= stage.B + stage.W and stage.held_after_B <= stage.held_after_F
        for stage in others
    )
    if split and costs_nothing:
        return [{}]
    if not (split and whole):
        return [{"backward": "split" if split else "fused"}]
    require_applicable(
        not _pairs_whole(problem, first),
        f"{runtime.title} splits all backwards or none, but for whole ones in pairs, and here "
        'neither is always better: say "backward": "split" or "backward": "fused" in every '
        "stage but the first, and solve both",
    )
    return [{"backward": "split"}, {"backward": "fused"}]


def _pairs_whole(problem: Problem, first: int) -> bool:
    """Whether another stage's whole backward may run in a pair, also where all are split."""
    if problem.overlap is None:
        return False
    listed = chain.from_iterable((*problem.overlap.times, *problem.overlap.factors))
    some = any(kind == "BW" and stage != first for stage, kind in listed)
    return problem.overlap.factor is not None or some
