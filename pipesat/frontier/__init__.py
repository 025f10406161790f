"""What memory buys: the best value against the capacity of the devices, and the least that does.

:mod:`~pipesat.frontier.caps` says which capacities matter, :mod:`~pipesat.frontier.curve` keeps
what is known about all of them, :mod:`~pipesat.frontier.study` solves at one,
:mod:`~pipesat.frontier.trace` at many, :mod:`~pipesat.frontier.least_search` for the least that is
enough.
"""
