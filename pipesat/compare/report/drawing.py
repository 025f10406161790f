"""What pages with timelines share: templates, style, scripts, the legend.

A page's policy allows its own script and style by their digests and nothing else: no further
script, whatever a name in a problem file says.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence
from typing import Any, Final

from pipesat.compare.report.tables import plain, shown
from pipesat.draw.style import (
    CAPACITY,
    COPY_BACK,
    COPY_OUT,
    EXCESS,
    FILL,
    HELD,
    MEANING,
    SHADES_OF_CHUNKS,
    STATIC,
    TINTS,
    class_tints,
    fill,
    ink_on,
    mode_text,
    named,
)
from pipesat.problem.problem import Problem

_HOME: Final = "pipesat.compare.report"
_SCRIPTS: Final = (
    "schedule.js",
    "words.js",
    "memory.js",
    "timeline.js",
    "panel.js",
    "marks.js",
    "pointing.js",
    "figures.js",
    "controls.js",
)


def rendered(
    template: str, package: str, *, scripts: Sequence[str], styles: Sequence[str] = (), **of: Any
) -> bytes:
    """Return a page of a package's template and scripts, on the base of what all pages share."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(lambda name: _text(name, package)),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    style = "\n".join([_colours(), *(_text(name, package) for name in ("report.css", *styles))])
    parts = "\n".join(_text(name, package) for name in (*_SCRIPTS, *scripts))
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'  # no name is seen from outside
    page = templates.get_template(template).render(digest=_digest, style=style, script=script, **of)
    return page.encode()


def legend(problem: Problem, data: dict[str, Any], *, memory: bool) -> list[tuple[str, str, str]]:
    """Return sample, text and letters of what occurs in one of the schedules."""
    rows = [row for schedule in data["schedules"] for row in schedule.get("devices", ())]
    letters = {letter for row in rows for letter in row["kinds"]}
    used = {letter.upper().replace("X", "BW") for letter in letters}
    modes = sorted({mode for row in rows for mode in row.get("modes", ())} - {0})
    tints = class_tints(problem)
    copied = any("copies" in row for row in rows)
    limited = any(device["memory"] is not None for device in data["devices"])
    occurs = [
        *((kind in used, f"kind-{kind}", MEANING[kind].partition(" ")[2], kind) for kind in FILL),
        *(
            (True, f"tint-{tint}", plain(named(names)), "")
            for tint, names in ({} if tints is None else tints.names).items()
        ),
        (any(map(str.islower, letters)), "", "two halves: a pair, run as one", ""),
        (any(stage["place"] for stage in data["stages"]), "chunks", SHADES_OF_CHUNKS, ""),
        *((True, f"mode-{min(mode, 3)}", plain(mode_text(problem, mode)), "") for mode in modes),
        (copied, "copy-out", "O copy out", ""),
        (copied, "copy-back", "L copy back", ""),
        (memory, "memory-held", "memory", ""),
        (any(d["static"] for d in data["devices"]), "memory-static", "its static part", ""),
        (limited, "memory-cap", "cap", ""),
        (any(s["over"] for s in data["schedules"]), "memory-excess", "over the cap", ""),
        (True, "critical-path", "critical path", ""),
    ]
    return [(sample, text, letters) for there, sample, text, letters in occurs if there]


def _colours() -> str:
    colours = {f"fill-{kind}": colour for kind, colour in FILL.items()}
    colours |= {f"ink-{kind}": ink_on(colour) for kind, colour in FILL.items()}
    colours |= {"held": HELD, "static": STATIC, "capacity": CAPACITY, "excess": EXCESS}
    colours |= {"copy-out": COPY_OUT, "copy-back": COPY_BACK}
    rules = " ".join(f"--{name}: {colour};" for name, colour in colours.items())
    shades = "\n".join(
        f".tint-{tint} {{ background: linear-gradient(90deg, "
        f"{fill('F', 0, tint)} 50%, {fill('BW', 0, tint)} 50%); }}"
        for tint in range(TINTS)
    )
    colours_of_chunks = ", ".join(fill("F", share / 3) for share in range(4))
    shades += f"\n.chunks {{ background: linear-gradient(90deg, {colours_of_chunks}); }}"
    return f":root {{ {rules} }}\n{shades}"


def _digest(text: str) -> str:
    """Digest of an inline script or style, as a content security policy wants it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _text(name: str, package: str) -> str:
    """Return a file of a package, or one that all pages share."""
    own = importlib.resources.files(package).joinpath(name)
    file = own if own.is_file() else importlib.resources.files(_HOME).joinpath(name)
    return file.read_text("utf-8")
