"""What the hazards of split backwards say of FSDP, held against torch's own."""

from __future__ import annotations

import pytest

from pipesat.measure.processes.forks import Call
from pipesat.measure.processes.launch import run_processes

pytest.importorskip("torch", reason="needs torch: pip install 'pipesat[torch]'")


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_split_backwards_lose_the_gradients_of_weights_that_fsdp_reshards() -> None:
    calls = {f"rank {n}": Call("tests.support.resharded:run_as_rank", (n,)) for n in (0, 1)}
    load = "pipesat.measure.processes.launch:load_torch_api"
    first, last = run_processes(calls, load=load, timeout=600).values()
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
