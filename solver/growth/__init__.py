"""How schedules grow: from few microbatches, by packing, by exchanges, and along guides with modes.

With memory modes, orders without are the guides: along each, as few as needed run in another mode,
those whose backward is farthest away (:mod:`assign`, :mod:`mode_starts`), or those that make it
least longer (:mod:`along`).
"""
