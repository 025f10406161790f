"""The script of docs/python.md that starts ranks runs as it stands."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs torch: pip install 'pipesat[torch]'",
    ),
]
PAGE = (ROOT / "docs" / "python.md").read_text()
STARTS = r"import pipesat\n(?:from [^\n]*\n)+\nif __name"
(LOCAL,) = re.findall(rf"```python\n({STARTS}.*?)```", PAGE, re.DOTALL)


def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LOCAL)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True"  # parity
    assert (tmp_path / "timeline.json").is_file()
