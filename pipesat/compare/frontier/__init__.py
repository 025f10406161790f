"""What memory buys: the best value against the capacity of the devices, and the least that does.

``memory`` has what users call. ``capacities`` says which capacities matter, ``curve`` keeps what is
known about all of them, ``solves`` solves at one and looks for the least that is enough, ``points``
solves at many.
"""
