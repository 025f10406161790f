"""Windows: large-neighbourhood search, in which a part of an order is free and all else keeps it.

docs/proofs/search.md explains it.
"""
