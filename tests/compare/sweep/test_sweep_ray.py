"""pipesat sweep on Ray against a real cluster: two nodes with their processes on this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.sweeps import (
    LONG,
    Save,
    rows_in,
    rows_so_far,
    small,
    start,
    wait_until,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install pipesat[ray]",
    ),
]

# Its own process, because Ray warns of things and pytest takes warnings for errors. It ends with
# its standard input, and the cluster with it.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=node)
try:
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    print(cluster.address, flush=True)
    sys.stdin.read()
finally:
    cluster.shutdown()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # paths of its sockets have to be short
    os.mkdir(os.path.join(folder, "ray"))  # Ray writes the cluster's address there
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        found = process.stdout.readline().strip()
        assert found, "the cluster did not start"
        yield found
    finally:
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_signal(address: str, save: Save, tmp_path: Path) -> None:
    # one device takes 20 + 31 + 17 units per microbatch, at once; the others all of their time
    short = "[[grid]]\ndevices = 1\nmicrobatches = 2\n"
    long = LONG.replace("[grid]", f"{short}[[grid]]").replace("[60, 61]", "60")
    spec, folder = save(long, "sweep.toml"), tmp_path / "out"
    process = start(spec, folder, "--processes", f"ray={address}")
    wait_until(lambda: rows_so_far(folder) == 1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert [row["result"]["value"] for row in rows_in(folder)] == [2 * 68]


def test_what_a_cluster_cannot_do(address: str, cli: Run, save: Save, tmp_path: Path) -> None:
    spec = save(small("devices = 1\nmicrobatches = 1", "[run]\nworkers = 2\n"), "sweep.toml")
    outcome = cli("sweep", spec, "-o", tmp_path / "out", "--processes", f"ray={address}")
    one_bad_line(outcome, "run.workers", "got 2", "at most 1", "largest node")
    assert not (tmp_path / "out").exists()
