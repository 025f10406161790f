"""``pipesat problem pairs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipesat.cli.commands import command
from pipesat.cli.derived import file_option
from pipesat.cli.exits import note
from pipesat.cli.options import Option
from pipesat.core.errors import BadInput
from pipesat.core.showing import Said

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.parts.answer import PairTimes
    from pipesat.parts.trace import PartsOfTrace


_MORE = (
    file_option("--picture", "Draw the streams, a .png or .svg.", written=True),
    Option(
        ["--draw"],
        multiple=True,
        metavar="OPS",
        help="What to draw: 0F+0BW, or 0BW alone, repeatable.  [default: every pair that saves "
        "time]",
    ),
)


@command(
    "workflows.pair_times:pair_times",
    example="pipesat problem pairs parts.json --into problem.json -o paired.json",
    also={"--map": "parts.trace:parts_of_trace"},
    names={"by": "--as", "mapping": "--map"},
    metavars={"mapping": "FILE"},
    without=("path",),
    extra=_MORE,
    follow={"picture": ("draw",)},
    output="FILE",
)
def pairs(asked: Asked) -> int:
    """Find how long pairs of ops take, from their parts.

    Writes the stages' F, B, W, BW and overlap.pairs of a problem into FILE. Ctrl-C ends the search.
    Times that are not proven to be the least by then are those of the best orders so far.
    """
    from pipesat.core.progress import doing
    from pipesat.files.atomic import write_file
    from pipesat.files.problem_file import problem_text
    from pipesat.parts.answer import ops_of_text
    from pipesat.parts.file import read_parts
    from pipesat.parts.picture import pictures_of

    if asked["mapping"] is not None:
        return _write_parts(asked)
    _require_picture(asked)
    data, picture = read_parts(asked["parts"]), asked["picture"]
    for text in asked["draw"]:
        ops_of_text(text, data)  # refused before the search
    asked.about = asked["into"]
    found: PairTimes = asked.answer(parts=data)
    document = found.document() if found.problem is None else found.problem.document
    files = {asked["output"]: problem_text(document).encode()}
    if picture is not None:
        with doing("drawing"):
            drawn = pictures_of(found, found.to_draw(asked["draw"]))
        files[picture] = drawn[picture.suffix[1:]]
    for path, content in files.items():
        write_file(path, content)
    into = asked.read.get("into")
    gone = f"the overlap that {asked['into']} had is replaced"
    more = [("Note", gone if into is not None and into.overlap is not None else "")]
    more += [("Picture", "" if picture is None else str(picture))]
    asked.show(found, lambda: found.document() | {"times": found.claims()}, more)
    return asked.interrupts.exit_code


def _write_parts(asked: Asked) -> int:
    """Write the parts of a trace."""
    from pipesat.files.atomic import write_file

    found: PartsOfTrace = asked.instead("--map").answer(path=asked["parts"])
    write_file(asked["output"], found.text.encode())
    for text in found.notes:
        note(text)
    asked.show(Said(), json.loads(found.text))
    return 0


def _require_picture(asked: Asked) -> None:
    picture: Path | None = asked["picture"]
    if picture is None:
        asked.refuse(["draw"], "expected --picture FILE with it")
    elif picture.suffix not in (".png", ".svg"):
        expected = "expected a name that ends in .png or .svg"
        raise BadInput(expected, where="--picture", value=str(picture))
