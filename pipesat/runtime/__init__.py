"""Running an exported order in torch's own pipeline runtime, on local processes without a GPU.

The calling process never imports torch: :mod:`~pipesat.runtime.run` starts one process per rank and
one for the reference (:mod:`~pipesat.runtime.pipeline`), and compares what they wrote.
:mod:`~pipesat.runtime.launch` sees to it that all of them end.
"""
