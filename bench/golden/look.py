"""What is kept of an answer: few words that tell whether it is the same, and what is not.

``exact`` keeps every entry of a result by its value, if that is short, or its digest. ``within``
keeps what a search promises: statuses, values that may fall, bounds that may rise. Of sentences,
pictures and pages is kept that they are there.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOLATILE = {"wall_s", "seconds", "versions", "version", "created", "cpu_s", "peak_rss", "host"}
VOLATILE |= {"finished", "peak_mib", "lower_bound_source"}
"""Keys whose values differ from run to run: of equal bounds, either may come first."""

PROSE = {
    *("explanation", "why_not", "note", "notes", "message", "remarks", "gains", "advice"),
    *("hazards", "warnings", "error", "trace"),
}
"""Keys that are written for people."""

RESULTS = {"status", "value", "makespan", "valid"}
"""Keys of documents that say how good something is: those are kept by entry."""

LESS = {"value", "cap", "best_order", "sum_of_peaks"}
MORE = {"lower_bound", "largest_too_little"}
STATUS = {"status", "sum_status"}
SAME = {"makespan", "span", "valid"}
RANKS = {"unknown": 0, "feasible": 1, "optimal": 2}


def kept_of_file(path: Path, held: str) -> Any:
    """Return what is kept of a written file."""
    if path.suffix == ".json":
        return kept_of_text(path.read_text(encoding="utf-8"), held)
    if held == "exact" and path.suffix == ".csv":
        head, *rows = [*csv.reader(io.StringIO(path.read_text(encoding="utf-8")))] or [[]]
        columns = [at for at, name in enumerate(head) if name not in VOLATILE | PROSE]
        return digest([[row[at] for at in columns if at < len(row)] for row in [head, *rows]])
    if held == "exact" and path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        return digest([_plain(json.loads(line)) for line in lines])
    if held == "exact" and path.suffix in (".toml", ".yaml", ".py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        return digest([line for line in lines if not line.lstrip().startswith("#")])
    return "there"


def kept_of_text(text: str, held: str) -> Any:
    """Return what is kept of a JSON text; that it is there, of any other or with ``code``."""
    try:
        document = json.loads(text)
    except ValueError:
        return "there"
    if held == "exact":
        return _folded(_plain(document))
    if held != "within":
        return "there"
    return dict(_promises("", document)) | _advised(document)


def _advised(document: Any) -> dict[str, Any]:
    """What an advice promises: the time of its first row, and of the best with nothing by hand."""
    if not isinstance(document, dict) or document.get("format") != "pipesat.advice/1":
        return {}
    chosen, rows = document["chosen"], document["rows"]
    plain = [row["makespan"] for row in rows if row["runs"] and row["fits"] and not row["by_hand"]]
    return {
        "advised.value": None if chosen is None else chosen["makespan"],
        "without.value": min(plain, default=None),
    }


def digest(value: Any) -> str:
    """Return what tells one value from another."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return "#" + hashlib.sha256(text.encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    """Return a document without what differs from run to run, and without sentences."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: bool(entry) if key in PROSE else _plain(entry)
        for key, entry in value.items()
        if key not in VOLATILE
    }


def _folded(value: Any) -> Any:
    """Each entry of a result, less what is empty; any other document's digest."""
    if not isinstance(value, dict) or not RESULTS & value.keys():
        return digest(value)
    said = {key: entry for key, entry in value.items() if entry not in (None, False, "", [], {})}
    short = {key: e if len(json.dumps(e)) <= 24 else digest(e) for key, e in said.items()}
    return {"keys": digest(sorted(value))} | short


def _promises(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _promises(f"{path}[{_index(entry, number)}]", entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            inner = f"{path}.{key}" if path else key
            if key in LESS | MORE | STATUS | SAME and not isinstance(entry, dict | list):
                beside = key == "value" and "largest_too_little" in value  # of least memory
                if not (beside or _open(path, key)):
                    yield inner, entry
            elif key not in VOLATILE | PROSE:
                yield from _promises(inner, entry)


def _index(entry: Any, number: int) -> str:
    """A row goes by its name, capacity or shape, not by its place."""
    if isinstance(entry, dict):
        for key in ("name", "cap", "shape"):
            if isinstance(entry.get(key), str | int):
                return str(entry[key])
    return str(number)


def _open(path: str, key: str) -> bool:
    """Whether a search promises nothing: which baseline was made in time, what else it reached.

    The bound beside a plan is of the plan that was found.
    """
    if path.startswith("comparison") and key in MORE:
        return True
    if key in SAME:
        return not path.startswith("[") or "[solver]" in path
    return path.endswith("baseline") or path.startswith("result") or "published" in path


def differences(before: Any, now: Any, held: str, path: str = "") -> Iterator[str]:
    """Yield each key that differs, or breaks a promise: what was recorded and what is there now."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            inner = f"{path} {key}".strip()
            if held == "within" and "[" in key and not (key in now and key in before):
                continue  # which capacities are asked depends on what was found
            if key not in now:
                yield f"{inner}: gone, recorded {before[key]!r}"
            elif key not in before:
                yield f"{inner}: new, now {now[key]!r}"
            else:
                yield from differences(before[key], now[key], held, inner)
    elif before != now and not (held == "within" and _kept_promise(path, before, now)):
        yield f"{path}: recorded {before!r}, now {now!r}"


def _kept_promise(path: str, before: Any, now: Any) -> bool:
    key = path.rpartition(".")[2].rpartition(" ")[2]
    if key in STATUS and before in RANKS and now in RANKS:
        return RANKS[now] >= RANKS[before]
    if key in LESS:
        return before is None or (now is not None and now <= before)
    if key in MORE:
        return before is None or (now is not None and now >= before)
    return False
