"""Which microbatch takes which place of an order, where microbatches differ.

``times`` values many permutations of one order at once, ``search`` walks through them.
"""
