"""Running an exported order in torch's own pipeline runtime, on local processes without a GPU.

The calling process never imports torch: :mod:`~pipesat.runtime.parity` starts one process per rank
(:mod:`~pipesat.runtime.measured_rank`) and one for the reference
(:mod:`~pipesat.runtime.reference`), and compares what they wrote.
:mod:`~pipesat.runtime.launch` sees to it that all of them end.
"""
