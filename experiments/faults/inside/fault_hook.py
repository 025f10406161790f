"""A module with a fault, made while it is imported; files stay as they are.

The environment's ``FAULT`` is a JSON document: ``path`` of the file and ``place`` of the fault.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import SourceFileLoader
from typing import Any


def install() -> None:
    """Let the import of the file with the fault go through here."""
    fault = json.loads(os.environ["FAULT"])
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        path = loader.get_filename(fullname)
        if os.path.realpath(path) != fault["path"]:
            return original(loader, fullname)
        from fault_places import Place, faulty

        source = loader.get_data(path).decode()
        return compile(faulty(source, Place(**fault["place"])), path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code
