"""What memory buys: the best value against the capacity of the devices, and the least that does.

:mod:`~pipesat.frontier.caps` says which capacities matter, :mod:`~pipesat.frontier.curve` keeps
what is known about all of them, :mod:`~pipesat.frontier.trace` spends the time,
:mod:`~pipesat.frontier.smallest` answers how little is enough.
"""
