"""Loops that the product has compiled, as they were in Python: what compiled ones must do."""
