"""Python runs this at its start where this folder is on PYTHONPATH: in every process of a test."""

import os

if "FAULTS" in os.environ:
    import fault_hook

    fault_hook.install()
