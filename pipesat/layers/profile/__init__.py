"""From measured costs to a problem: profile files and what is derived from them, without torch.

Measuring itself is in :mod:`pipesat.measure.processes.profiling`, which needs torch.
"""
