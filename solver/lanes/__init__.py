"""What every part of the search runs on: one clock with its stop, one runner of models, lanes.

``clock`` says when to end, ``runner`` solves one CP-SAT model at a time in each lane (a thread),
and ``incumbent`` keeps the best of what they find and prove.
"""
