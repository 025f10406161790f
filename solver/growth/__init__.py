"""Growth: a good schedule of few microbatches, with a part of it repeated until there are enough.

``search`` is the door: it makes schedules of few microbatches better and better. ``cuts`` finds the
parts of a schedule that may be repeated, ``repetition`` repeats them and says why that is valid.
"""
