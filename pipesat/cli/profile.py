"""``pipesat profile``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from pipesat.cli.commands import command
from pipesat.cli.options import settings
from pipesat.cli.terminal import print_table
from pipesat.core.amounts import readable
from pipesat.core.claims import plural
from pipesat.core.showing import Column, Displayed, Facts, Table
from pipesat.profile.published import SHAPES

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.profile.costs_file import MeasuredCostsModel
    from pipesat.profile.file import Profile


def _list_configs(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Print the named configurations and leave."""
    del param
    if wanted:
        print_configs()
        ctx.exit()


_LISTED = click.Option(
    ["--list"],
    is_flag=True,
    callback=_list_configs,
    is_eager=True,
    expose_value=False,
    help="List the configurations and their sources, and exit.",
)


@command(
    "profile",
    example="pipesat profile --config tiny --shape batch=4 --samples 20 -o profile.json",
    metavars={
        "config": "NAME",
        "model": "MODULE:FUNCTION",
        "shape": "KEY=VALUE[,...]",
        "compile": "BACKEND",
    },
    follow={
        "device": ("dtype", "threads"),
        "samples": ("warm_up", "timeout"),
        "stages": {"cut": "split"},
        "measure": {"modes": "measure_modes", "links": "measure_links"},
    },
    extra=(_LISTED, settings("measure", "Measure these, too.")),
    output="FILE",
)
def profile(asked: Asked) -> None:
    """Measure F, B, W, BW and memory of your model's layers.

    Needs PyTorch: pip install 'torch>=2.13'.
    """
    from pipesat.cli.terminal import print_answer, print_json
    from pipesat.profile.file import write_document

    if asked["model"] is not None:
        asked.refuse(["config"], "this is of the built-in decoder, not of --model")
    measured: Profile = asked.answer()
    write_document(asked["output"], measured)
    if asked["as_json"]:
        print_json(measured.model_dump())
    else:
        print_answer(ShownProfile(measured), [("Written to", str(asked["output"]))])


def print_configs() -> None:
    """Print the named configurations, with their sources."""
    heads = ["name", "style", "layers", "width", "heads", "kv\nheads", "feed-\nforward"]
    heads += ["words", "length", "source"]
    columns = [Column(head, number=head not in ("name", "style", "source")) for head in heads]
    lines = []
    for name, entry in SHAPES.items():
        s = entry.shape
        sizes = (s.layers, s.width, s.heads, s.kv_heads, s.feed_forward, s.vocabulary)
        lines.append((name, s.style, *map(str, sizes), str(entry.length), entry.source))
    print_table(columns, lines, wrap_last=True)


@dataclass(frozen=True, repr=False)
class ShownProfile(Displayed):
    """What each kind of layer and each stage takes and holds."""

    measured: Profile

    def tables(self) -> Iterator[Table]:
        """Yield a line per kind of layer and per stage."""
        measured = self.measured
        heads = ("F", "B", "W", "BW", "(B + W)\n/ BW", "held\nafter F", "held\nafter B")
        columns = [
            Column("", number=False),
            *map(Column, heads),
            Column("largest\ntransient", spare=2),
            Column("spread\nof F", spare=1),
        ]
        counts = {kind: sum(x.kind == kind for x in measured.layers) for kind in measured.kinds}
        rows = [
            _row(kind if counts[kind] == 1 else f"{kind} ({counts[kind]} of them)", costs)
            for kind, costs in measured.kinds.items()
        ]
        for stage in measured.stages:
            begin, end = stage.layers
            rows.append(_row(f"layers {begin} to {end - 1}", stage.costs))
        note = "medians in ms, spread from the 10th to the 90th percentile"
        yield Table(columns, rows, notes=[note])

    def facts(self) -> Facts:
        """Return where it was measured, and what to know of it."""
        measured, e = self.measured, self.measured.environment
        threads = f"{e.threads} {plural(e.threads, 'thread')}"
        kinds = measured.kinds.items()
        reasons = dict.fromkeys(costs.no_split for _, costs in kinds if costs.no_split)
        whose = {r: ", ".join(k for k, costs in kinds if costs.no_split == r) for r in reasons}
        late = ", ".join(kind for kind, costs in kinds if costs.host_bound)
        waited = f"the GPU waited for the host in {late}: their times include launches, and "
        links = (
            ""
            if measured.links is None
            else ", ".join(
                f"{x.delay.median / 1000:.3f} ms for {x.bytes} B" for x in measured.links.sizes
            )
        )
        return [
            ("Machine", f"{e.device_name}, {e.dtype}, torch {e.torch}, {threads}"),
            *(("Fused", f"no B and W of {names}: {why}") for why, names in whose.items()),
            ("Doubt", waited + "waiting if a layer reads a value back" if late else ""),
            *(("Tied", f"{t.name} is shared by layers {t.layers}") for t in measured.tied),
            ("Links", f"{links} ({measured.links.backend})" if measured.links else ""),
        ]


def _row(name: str, costs: MeasuredCostsModel) -> tuple[str, ...]:
    split = costs.B is not None and costs.W is not None
    b = costs.B.median if costs.B else 0.0
    w = costs.W.median if costs.W else 0.0
    whole = costs.BW.median
    return (
        name,
        _ms(costs.F.median),
        _ms(b) if split else "-",
        _ms(w) if split else "-",
        _ms(whole),
        f"{(b + w) / whole:.2f}" if split and whole else "-",
        readable(costs.held_after_F),
        readable(costs.held_after_B) if split else "-",
        readable(max(costs.transient.model_dump().values())),
        f"{_ms(costs.F.low)} to {_ms(costs.F.high)}",
    )


def _ms(us: float) -> str:
    return f"{us / 1000:.3f}"
