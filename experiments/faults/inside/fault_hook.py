"""Modules with a fault, made while they are imported; files stay as they are.

The environment's ``FAULTS`` is a JSON document: the path of each file with the place of its fault.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import SourceFileLoader
from typing import Any


def install() -> None:
    """Let the import of the files with faults go through here."""
    faults = json.loads(os.environ["FAULTS"])
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        path = loader.get_filename(fullname)
        if (place := faults.get(os.path.realpath(path))) is None:
            return original(loader, fullname)
        from fault_places import Place, faulty

        source = loader.get_data(path).decode()
        return compile(faulty(source, Place(**place)), path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code
