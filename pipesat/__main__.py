"""``python -m pipesat`` is the same as ``pipesat``."""

from pipesat.cli import main

main()
