"""Justification: shorten any order by greedy packing, forward and backward by turns.

``pack`` is one pass, ``justify`` the walk through many.
"""
