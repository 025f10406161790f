"""Every command on every kind of problem: it works, or says in one line why it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain, document

Document = dict[str, Any]

LISTED = [{"name": "long", "count": 1, "time": [2, 1], "held": [2, 1]}, {"name": "a", "count": 2}]
AGAIN = {"name": "again", "backward": "fused", "BW": 7, "held_after_F": 1}
HOST = {"name": "host", "offload": {"out": 2, "in": 2, "held": 1}}


def plain() -> Document:
    return document(chain(2, 3, F=2, B=2, W=1, cap=16, comm=1, held=(4, 1)))


def with_modes() -> Document:
    found = plain()
    found["stages"] = [stage | {"modes": [AGAIN, HOST]} for stage in found["stages"]]
    return found


def two_routes() -> Document:
    found = plain()
    del found["microbatches"]
    found["stages"] += found["stages"][::-1]
    lists = [LISTED[:1], LISTED[1:]]
    listed = zip(([0, 1], [2, 3]), lists, strict=True)
    return found | {"routes": [{"stages": s, "microbatches": m} for s, m in listed]}


PROBLEMS = {
    "list": plain() | {"microbatches": LISTED, "order": "same"},
    "list, given": plain() | {"microbatches": LISTED, "order": "given"},
    "list with FB": plain() | {"microbatches": LISTED, "overlap": {"FB": [2, 3]}},
    "pairs": plain() | {"overlap": {"pairs": [{"ops": ["0F", "0BW"], "time": 4}]}},
    "modes": with_modes(),
    "list with modes": with_modes() | {"microbatches": LISTED, "order": "free"},
    "routes": two_routes(),
}

LIMIT = ("--time-limit", "0.1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "solve": ("solve", "p.json", *LIMIT, "--workers", "1"),
    "solve span": ("solve", "p.json", "--objective", "span", *LIMIT, "--workers", "1"),
    "solve for torch": ("solve", "p.json", "--for", "torch", *LIMIT, "--workers", "1"),
    "compare": ("compare", "p.json", *LIMIT, "--workers", "1"),
    "1f1b": ("export", "p.json", "1f1b", "--to", "schedule", "-o", "b.json"),
    "check": ("check", "p.json", "s.json"),
    "show": ("show", "p.json", "s.json"),
    "steps": ("show", "p.json", "s.json", "--steps"),
    "risk": ("compare", "p.json", "s.json", "--noise", "5%", "--noise", "samples=2"),
    "export torch-csv": ("export", "p.json", "s.json", "--to", "torch-csv", "-o", "x.csv"),
    "export torchtitan": ("export", "p.json", "1f1b", "--to", "torchtitan", "-o", "x.toml"),
    "export order": ("export", "p.json", "s.json", "--to", "order", "-o", "o.json"),
    "export trace": ("export", "p.json", "s.json", "--to", "trace", "-o", "t.json"),
    "order": ("balance", "p.json", *LIMIT),
    "order span": ("balance", "p.json", "--objective", "span", *LIMIT),
    "min-memory": ("frontier", "p.json", "--within", "5%", *LIMIT, "--workers", "1"),
    "frontier": ("frontier", "p.json", *LIMIT, "--workers", "1", "--caps", "points=2"),
    "levers": ("frontier", "p.json", *LIMIT, "--workers", "1", "--caps", "points=2", "--by-mode"),
}

NO_LIST = "all are alike, so their order changes nothing"
NO_PAIRS = "microbatches that are a list take no pairs by time"
NO_COPIES = "torch offloads within its ops"
NO_LEVERS = "the problem has no memory modes"
ONE_ROUTE = {
    "1f1b": "needs a single route",
    "solve for torch": "torch runs one route",
    "export torch-csv": "torch runs one route",
    "export torchtitan": "needs a single route",
    "pairs": "4 stages, expected 2",
}
REFUSED: dict[str, dict[str, str]] = {
    "list": {"pairs": NO_PAIRS, "levers": NO_LEVERS},
    "list, given": {"pairs": NO_PAIRS, "levers": NO_LEVERS},
    "list with FB": {"pairs": NO_PAIRS, "levers": NO_LEVERS},
    "pairs": {"order": NO_LIST, "order span": NO_LIST, "levers": NO_LEVERS},
    "modes": {
        "order": NO_LIST,
        "order span": NO_LIST,
        "solve for torch": NO_COPIES,
    },
    "list with modes": {
        "pairs": NO_PAIRS,
        "solve for torch": NO_COPIES,
    },
    "routes": {**ONE_ROUTE, "levers": NO_LEVERS},
}
"""By problem and command, what the one line says; every other one works."""


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_works_or_says_why_not(
    name: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text(json.dumps(PROBLEMS[name]))
    assert cli("export", "p.json", "list-scheduling", "--to", "schedule", "-o", "s.json").code == 0
    for command, words in COMMANDS.items():
        ran = cli(*words)
        said = REFUSED[name].get(command)
        if said is None:
            assert ran.code == 0, f"{command}: {ran.err}"
            assert "Traceback" not in ran.err
        else:
            one_bad_line(ran, said)
