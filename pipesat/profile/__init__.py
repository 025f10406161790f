"""From measured costs to a problem: profile files and what is derived from them, without torch.

Measuring itself is in :mod:`pipesat.runtime.profiling`, the only place here that needs torch.
"""
