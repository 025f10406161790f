"""Large-neighbourhood search: re-optimise a part of an order, everything else keeps its order.

docs/proofs/search.md explains it.
"""
