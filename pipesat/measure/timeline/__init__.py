"""Measured timelines: what really ran when, against what was predicted, and new costs from it.

Nothing here needs torch: :mod:`pipesat.measure.processes` and torch's profiler traces make
timelines, files carry them.
"""
