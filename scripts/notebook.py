"""Run docs/first-steps.ipynb and put its outputs into it: python scripts/notebook.py."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs" / "first-steps.ipynb"


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; return its outputs as a notebook has them."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
        page = value._repr_html_() if hasattr(value, "_repr_html_") else None
        if page is not None:  # matplotlib's figures have the method, and return nothing
            data["text/html"] = [page]
        elif hasattr(value, "_repr_png_"):
            data["image/png"] = base64.b64encode(value._repr_png_()).decode()
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return outputs


def main() -> None:
    """Run every cell in a folder of its own."""
    notebook = json.loads(NOTEBOOK.read_text())
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"] = run("".join(cell["source"]), names)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{NOTEBOOK}\n")


if __name__ == "__main__":
    main()
