"""What memory buys: the best value against the capacity of the devices, and the least that does.

:mod:`~pipesat.frontier.caps` says which capacities matter, :mod:`~pipesat.frontier.curve` keeps
what is known about all of them, :mod:`~pipesat.frontier.study` solves at one and looks for the
least that is enough, :mod:`~pipesat.frontier.trace` solves at many.
"""
