"""Compiled loops over plain arrays: they know integers alone, and import nothing of pipesat."""
