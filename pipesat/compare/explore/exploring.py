"""Play with a pipeline on a local page, until its terminal ends it."""

from __future__ import annotations

import os
import select
import sys
import threading
import warnings
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pipesat.core.arguments import public
from pipesat.core.errors import ProblemWarning, require
from pipesat.core.settings import Within

if TYPE_CHECKING:
    from pipesat.layers.layer import Layers
    from pipesat.layers.profile.profile_file import Profile
    from pipesat.problem.problem import Problem

Port: TypeAlias = Annotated[int, Within(0, 65535)]
_DISPLAYS: Final = {"DISPLAY", "WAYLAND_DISPLAY"}


@public
def explore(
    source: Problem | Layers | Profile | str | Path | None = None,
    *,
    gpu: str | None = None,
    folder: str | Path | None = None,
    port: Port = 8642,
    browser: bool = True,
    ready: Callable[[str], None] = print,
    stop: threading.Event | None = None,
) -> None:
    """Play with a pipeline on a page in your browser, served on this machine alone.

    Returns when ``stop`` is set, or when the terminal or the process that started it has gone.
    Needs Werkzeug, the extra ``explore``.

    Parameters
    ----------
    source
        A problem, layers or profile file, a published model, or a link that the page has made.
    gpu
        The GPU that a published model's costs are estimated for, as h100.
    folder
        The only folder that the page exports to; ``None``: it exports nothing.
    port
        Port on 127.0.0.1, 0 for any free one.
    browser
        Open a browser, if there is a display.
    ready
        Called with the address when the page is there.

    Raises
    ------
    BadInput
        If the source is none of these, the port is taken, or the extra is not installed.
    """
    require(
        find_spec("werkzeug") is not None,
        "the page needs Werkzeug, the extra `explore`: pip install 'werkzeug>=3.0'",
    )
    from pipesat.compare.explore.answers import Answers
    from pipesat.compare.explore.server import served
    from pipesat.compare.explore.stated import problem_of, stated_by
    from pipesat.compare.report.drawing import rendered
    from pipesat.core.atomic import remove_empty
    from pipesat.core.folder import prepare_result_folder

    linked = str(source).partition("#")[2] if str(source).startswith("http:/") else ""
    html = rendered(
        "explore.html",
        "pipesat.compare.explore",
        scripts=("ranking.js", "curve.js", "explore.js"),
        styles=("explore.css",),
        policy="; connect-src 'self'",
        title="pipesat explore",
    )
    with warnings.catch_warnings(), ExitStack() as around:
        warnings.simplefilter("ignore", ProblemWarning)  # the page has them
        begin = stated_by(None if linked else source, gpu)
        problem_of(begin)  # what is wrong with it is said here
        if folder is not None:
            around.callback(remove_empty, prepare_result_folder(Path(folder)))
        answers = Answers(begin, None if folder is None else Path(folder))
        with served(html, answers, port) as address:
            full = f"{address}&{linked}" if linked else address
            ready(full)
            if browser and (sys.platform == "darwin" or os.environ.keys() & _DISPLAYS):
                threading.Thread(target=webbrowser.open, args=(full,), daemon=True).start()
            _until_gone(stop or threading.Event())
            answers.stop.set()
            answers.searching.acquire(timeout=3)  # the search under way ends


def _until_gone(stop: threading.Event) -> None:
    """Wait for ``stop``, for another parent, or for a standard input that hangs up."""
    parent, terminal = os.getppid(), select.poll()
    terminal.register(0, 0)
    hung = terminal.poll(0)
    while not stop.wait(0.5) and os.getppid() == parent and terminal.poll(0) == hung:
        pass
