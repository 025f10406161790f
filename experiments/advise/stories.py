"""The story of docs/advise.md as its reader runs it: every command, its wall time, its output.

``python experiments/advise/stories.py [torchtitan] [megatron] [quick] [moe]``; a
folder for what is written is made anew under the system's temporary one.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STORY = (
    "advise llama3-8b --gpu h100 --devices 8 --microbatches 32 --memory 40GiB "
    "--for {runtime} -o out"
)
EXAMPLES = Path(__file__).parents[2] / "examples"
STORIES = {
    "torchtitan": STORY.format(runtime="torchtitan"),
    "megatron": STORY.format(runtime="megatron"),
    "quick": STORY.format(runtime="torchtitan") + " --time-limit 20",
    "moe": f"advise {EXAMPLES / 'layers-moe.json'} --overlap 53/100 --devices 4 --microbatches 16 "
    "--memory 60GiB --link-delay 500 --for megatron -o out",
}


def main(names: list[str]) -> None:
    """Run stories and print what they print, as Markdown."""
    for name in names or list(STORIES):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-m", "pipesat", *shlex.split(STORIES[name])]
            began = time.monotonic()
            done = subprocess.run(words, check=False, cwd=folder, capture_output=True, text=True)
            seconds = time.monotonic() - began
        if done.returncode:
            sys.exit(f"{STORIES[name]}: exit code {done.returncode}\n{done.stderr}")
        text = f"`pipesat {STORIES[name]}`: {seconds:.0f} s\n\n```\n{done.stdout}```\n"
        print(text.replace(f"{EXAMPLES}", "examples"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
