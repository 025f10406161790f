"""Run the commands and Python of README and docs as they are written, with the package of a wheel.

``WHEEL/bin/python run.py [--limit SECONDS] FOLDER [PAGE ...]``, from anywhere: pages are read in
the order of the site, in FOLDER, where what a page has made stays for the pages after it. A new
FOLDER gets the shipped examples and the trace of a made-up job. ``--limit`` gives every search that
states no limit, and counts no steps, this one. All that commands print is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pipesat

ROOT = Path(__file__).parents[2]
NOT_RUN = {
    r"^(bash scripts/|source )": "in the clone",
    r"^pip install": "this environment has the extras that it was made with",
    r"torchrun --nnodes 2": "needs two machines",
    r"^(pipesat explore|pipesat\.explore|ssh )": "stays until it is ended",
    r"\brank0\.json\b|pp_data": "reads traces of a job of your own",
    r"PipelineStage\)|_PipelineScheduleRuntime\(": "runs in a rank of torch",
    r"^# my_model.py": "is completed by you",
}


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block, or cell."""
    text = (ROOT / page).read_text()
    if page.endswith("ipynb"):
        cells = json.loads(text)["cells"]
        yield from (("python", "".join(c["source"])) for c in cells if c["cell_type"] == "code")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield match[1], match[2]


def limited(line: str, limit: float | None) -> str:
    """Append a time limit where the command has one and the line does not say it."""
    if limit is None or re.match(r"(?!pipesat )|.*--(time-limit|deterministic)", line):
        return line
    words = [word for word in line.split()[1:3] if re.fullmatch(r"[a-z-]+", word)]
    told = shell(" ".join(["pipesat", *words, "--help"]))[1]
    searches = "--time-limit" in told and not re.search("^pipesat run |--dry-run|--noise", line)
    bare, hash_, remark = line.partition(" #")
    return f"{bare} --time-limit {limit:g}{hash_}{remark}" if searches else line


def shell(line: str) -> tuple[bool, str]:
    """Run a line; return whether it succeeded, and what it said."""
    found = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True)
    return found.returncode == 0, f"{found.stdout}{found.stderr}"


def python(text: str, names: dict[str, Any], limit: float | None) -> tuple[bool, str]:
    """Run a block; return whether it succeeded, and what it said."""
    if limit is not None:
        text = re.sub(r"time_limit=\d+", f"time_limit={limit:g}", text)
    if "__main__" in text:  # its processes import it
        Path("block.py").write_text(text)
        return shell(f"{sys.executable} block.py")
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(text, "page", "exec"), names)
    except Exception:
        return False, said.getvalue() + traceback.format_exc()
    return True, said.getvalue()


def read(page: str, limit: float | None) -> Iterator[tuple[str, bool | None]]:
    """Do what a page says, from top to bottom; yield each line or block and whether it worked."""
    names: dict[str, Any] = {"__name__": "page"}
    all_said, counted = "", False
    for language, text in blocks(page):
        if language == "text":
            unsaid = {*text.split()} - {*all_said.split()}
            words = " ".join(sorted(word for word in unsaid if re.search("[a-z]{3}", word)))
            print(f"shown, and not printed: {words}")
            if counted:  # figures that are the same everywhere, but for "Searched 4.9 s"
                yield f"prints what {page} shows", len(unsaid) <= 1
        counted = "--deterministic" in text
        lines = [text] if language == "python" else text.replace("\\\n", " ").splitlines()
        if language in ("", "bash", "sh", "python"):
            for line in filter(str.strip, lines):
                print(f"\n$ {line.rstrip()}", flush=True)
                if any(re.search(pattern, line) for pattern in NOT_RUN):
                    yield line, None
                    continue
                began = time.monotonic()
                is_python = language == "python"
                worked, said = (
                    python(line, names, limit) if is_python else shell(limited(line, limit))
                )
                all_said += said
                print(f"{said}[{time.monotonic() - began:.1f} s]", flush=True)
                yield line, worked


def main() -> int:
    """Read every page; print what failed, and a table of what ran."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="*")
    asked = parser.parse_args()
    package = Path(pipesat.__file__).resolve()
    if ROOT in package.parents:
        parser.error(f"this is the clone's package, not a wheel's: {package}")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asked.folder.mkdir(exist_ok=True)
    os.chdir(asked.folder)
    if not Path("examples").exists():
        shell("pipesat problem examples examples")
        make_traces()
    site = re.findall(
        r": (README\.md|docs/(?!commands)[\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M
    )
    pages = asked.pages or [page.replace("first-steps.md", "first-steps.ipynb") for page in site]
    table, failed = "", ""
    for page in pages:
        done = list(read(page, asked.limit))
        failed += "".join(f"FAILED in {page}: {line}\n" for line, worked in done if worked is False)
        left = sum(worked is None for _, worked in done)
        table += f"| {page} | {len(done) - left} | {left} |\n"
    print(f"\n{table}{failed}pipesat {pipesat.__version__}")
    return bool(failed)


def make_traces() -> None:
    """Write what torch's profiler would have of two ranks with two stages each."""
    sys.path.append(str(ROOT))  # behind the wheel's package
    from tests.support.traced import made_up, torch_traces

    folder = Path("outputs/profile_traces/iteration_10")
    folder.mkdir(parents=True)
    for rank, trace in enumerate(torch_traces(made_up(2, 8, 2))):
        (folder / f"rank{rank}_trace.json").write_text(json.dumps(trace))


if __name__ == "__main__":
    sys.exit(main())
