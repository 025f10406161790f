"""Readers of traces: one module per family of formats, each yields plain rows.

A format is an entry of :data:`FORMATS`: what recognises a file's content, what reads all files, and
what to switch on so that a trace holds what is needed. Everything after the rows is common.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pipesat.core.errors import BadInput, require, shorten
from pipesat.core.strict_json import LARGEST_RUN, read_bytes
from pipesat.measure.timeline.readers import chrome, rows
from pipesat.measure.timeline.readers import megatron_timers as megatron
from pipesat.measure.timeline.readers.rows import FileValue, Trace, TraceStatement

_NAMELESS: Final = (
    "no range names an op of a pipeline. Megatron names none, nor does torch's Schedule1F1B: "
    "record these with pipesat.record (docs/files.md), or run the order in torch's multi-stage "
    "runtime, which names its ranges PP:0F0"
)
_TRACE: Final = re.compile(r".*\.(json|json\.gz|jsonl|log|txt)")


class Format(NamedTuple):
    """A format of traces."""

    name: str
    recognises: Callable[[Any], object]
    read: Callable[[Sequence[FileValue], TraceStatement], Trace]
    switch_on: str


_DRAWN: Final = Format(
    "a schedule",
    chrome.drawn,
    chrome.read_drawn,
    "pipesat export --to trace, or torch's _dump_chrometrace",
)
FORMATS: Final = (
    Format(
        "torch profiler",
        chrome.is_torch,
        chrome.read_torch,
        "torch.profiler around the step, on all ranks",
    ),
    _DRAWN,
    Format(
        "NDTimeline",
        chrome.is_ndtimeline,
        chrome.read_ndtimeline,
        "forward-compute and backward-compute",
    ),
    Format(
        "Primus dump_pp_data",
        megatron.is_primus,
        megatron.read_primus,
        "--dump_pp_data true, which writes config.json and pp_rank_*.json",
    ),
    Format("pipesat timeline", rows.is_recorded, rows.read_recorded, "pipesat.record"),
    Format(
        "Megatron timers",
        megatron.is_timers,
        megatron.read_timers,
        "--timing-log-level 2 --timing-log-option all",
    ),
)


def read_trace(paths: Sequence[str | Path], told: TraceStatement) -> Trace:
    """Read the files, or all files of folders, of one run."""
    files = sorted(  # rank 2 before rank 10
        _files(paths), key=lambda path: [*map(int, re.findall(r"[0-9]{1,18}", path.name))]
    )
    require(files, "none are given: expected traces of one run, or their folder", where="paths")
    documents = [FileValue(str(path), _content(path)) for path in files]
    formats = [
        next((one for one in FORMATS if one.recognises(document.content)), None)
        for document in documents
    ]
    for document, one in zip(documents, formats, strict=True):
        if one is None and (not any(formats) or document.source in map(str, paths)):
            raise _unknown(document)  # what else lies in a folder is left alone
    known = [(own, one) for own, one in zip(documents, formats, strict=True) if one]
    ran = [(own, one) for own, one in known if one is not _DRAWN or own.source in map(str, paths)]
    known = ran or known  # a picture of the schedule in the folder of its run
    first, chosen = known[0]
    for document, other in known:
        require(
            other is chosen,
            f"this is of {other.name}, {first.source} of {chosen.name}: give the files of one job",
            source=document.source,
        )
    try:
        trace = chosen.read([document for document, _ in known], told)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadInput(
            f"not as {chosen.name} writes it: {shorten(error)}", source=first.source
        ) from None
    require(
        trace.rows,
        f"no op of a pipeline is in it. Switch on: {chosen.switch_on}",
        source=trace.source,
    )
    return trace


def _files(paths: Sequence[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if not path.is_dir():
            yield path
            continue
        named = (one for one in path.iterdir() if _TRACE.fullmatch(one.name) and one.is_file())
        inside = sorted(named)
        if not inside:
            text = "no .json, .json.gz, .jsonl, .log or .txt is in it"
            below = min((str(one) for one in path.iterdir() if one.is_dir()), default="")
            raise BadInput(
                f"{text}. Give one folder of it, as {below}" if below else text, source=str(path)
            )
        yield from inside


def _content(path: Path) -> Any:
    """Return a file's JSON, all documents of several in a row, or its text."""
    source = str(path)
    data = read_bytes(path, LARGEST_RUN, packed=True)
    text = data.decode("utf-8", "replace").lstrip("\ufeff").strip()
    require(text, "the file is empty, expected a trace", source=source)
    if text[0] not in "[{" or megatron.is_timers(text):
        return text
    found, place, decoder = [], 0, json.JSONDecoder(strict=False)
    try:
        while place < len(text):
            one, end = decoder.raw_decode(text, place)
            found.append(one)
            place = end + len(text[end:]) - len(text[end:].lstrip(", \t\r\n"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", source=source) from None
    return found[0] if len(found) == 1 else found


def _unknown(document: FileValue) -> BadInput:
    """Return the complaint about a file of no known format."""
    content = document.content
    if isinstance(content, dict) and str(content.get("format")).startswith("pipesat."):
        return BadInput(f"this is a {content['format']} file, no trace", source=document.source)
    if chrome.events_of(content) is not None:
        return BadInput(_NAMELESS, source=document.source)
    return BadInput(
        f"no known trace, expected: {', '.join(one.name for one in FORMATS)}",
        source=document.source,
    )
