"""Gather the site's pages into build/pages, and build build/site: python scripts/site.py.

The pages lie there as in the repository, so that every relative link leads to the same file as it
does on disk.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.commands.build import build
from mkdocs.config import load_config

import pipesat
from pipesat.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
EXAMPLE = "examples/zb-6.2B-p8-m16-cap0.75.json"


def main() -> int:
    """Write every page, then build."""
    shutil.rmtree(PAGES, ignore_errors=True)
    tracked = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for name in tracked:
        gather(name)
    write("scripts/site.css", (ROOT / "scripts" / "site.css").read_text())
    write("docs/first-steps.md", notebook(ROOT / "docs" / "first-steps.ipynb"))
    write("docs/commands.md", "# Commands\n\n" + "\n".join(helps(app, "pipesat")))
    names = (f"::: pipesat.{name}\n" for name in pipesat.__all__ if name != "__version__")
    python = PAGES / "docs" / "python.md"
    python.write_text("\n".join([python.read_text(), "## Every function\n", *names]))
    report(PAGES / "docs" / "example-report.html")
    logging.basicConfig(level=logging.WARNING)
    config = load_config(str(ROOT / "mkdocs.yml"))
    build(config)
    search_from_disk(Path(config.site_dir))
    sys.stdout.write(f"open {ROOT / 'build' / 'site' / 'index.html'}\n")
    return 0


def search_from_disk(site: Path) -> None:
    """Put our own few lines in the place of a script that pages would load from elsewhere."""
    ours = f"<script>{(ROOT / 'scripts' / 'site.js').read_text()}</script>"
    for page in site.rglob("*.html"):
        text = page.read_text()
        page.write_text(re.sub(r'<script src="https?://[^"]*"></script>', lambda _: ours, text))


def write(name: str, text: str) -> None:
    """Write a page."""
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def gather(name: str) -> None:
    """Copy a page and whatever it links to that is no page; folders become plain text."""
    folder = (ROOT / name).parent

    def link(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        path = (folder / target).resolve()
        if not target or ":" in target or path.suffix == ".md":
            return match[0]
        if path.suffix == ".ipynb":
            return f"{match[1]}{target.removesuffix('.ipynb')}.md{match[3]}"
        if path.is_dir():
            return match[1].strip("![]()")
        copy = PAGES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
        return match[0]

    write(name, LINK.sub(link, (ROOT / name).read_text()))


def notebook(path: Path) -> str:
    """The notebook with its outputs as a page; pictures are inside."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = {"text/plain": output.get("text", []), **output.get("data", {})}
            if "image/png" in data:
                inside = base64.b64encode(base64.b64decode(data["image/png"])).decode()
                parts.append(f"![{''.join(data['text/plain'])}](data:image/png;base64,{inside})")
            elif "text/html" in data:
                parts.append(f"<div markdown=0>{''.join(data['text/html'])}</div>")
            else:
                parts.append(f"```text\n{''.join(data['text/plain'])}\n```")
    return "\n\n".join(parts) + "\n"


def helps(command: Any, name: str) -> Iterator[str]:
    """Every command's help, the commands below it after it."""
    context = click.Context(
        command, info_name=name, terminal_width=80, help_option_names=["-h", "--help"]
    )
    yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"
    for sub in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from helps(command.get_command(context, sub), f"{name} {sub}")


def report(path: Path) -> None:
    """Solve the README's problem, and write its report."""
    problem = pipesat.read(str(ROOT / EXAMPLE))
    pipesat.report(pipesat.solve(problem, time_limit=20), str(path))


if __name__ == "__main__":
    sys.exit(main())
