"""Running an exported order in torch's own pipeline runtime, on local processes without a GPU.

The calling process never imports torch: :mod:`~pipesat.measure.processes.run` starts one process
per rank and one for the reference (:mod:`~pipesat.measure.processes.pipeline`), and compares what
they wrote.
:mod:`~pipesat.measure.processes.launch` sees to it that all of them end.
"""
