"""What the hazards of split backwards say of FSDP, held against torch's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytest.importorskip("torch", reason="needs torch: pip install 'pipesat[torch]'")


@pytest.mark.slow
def test_split_backwards_lose_the_gradients_of_weights_that_fsdp_reshards(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.resharded", str(rank), str(tmp_path)],
            cwd=ROOT,
            env=dict(os.environ) | {"GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in (0, 1)
    ]
    assert [process.wait(600) for process in processes] == [0, 0]
    first, last = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    true = last["whole, kept"]
    assert None not in true.values()

    def differ(case: str, rank: dict[str, dict[str, float | None]]) -> dict[str, str]:
        return {
            name: "none" if value is None else "wrong"
            for name, value in rank[case].items()
            if value != pytest.approx(rank["whole, kept"][name], rel=1e-4)
        }

    for case in last:
        assert differ(case, first) == {}  # the first stage's backward is always whole
        order, _, how = case.partition(", ")
        fault = {"in turn": "none", "I after I": "wrong"}.get(order)
        lost = {"kept": [], "resharded": list(true), "chunked": ["norm.weight"]}[how]
        assert differ(case, last) == ({} if fault is None else dict.fromkeys(lost, fault)), case
