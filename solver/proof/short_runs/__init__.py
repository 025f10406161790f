"""Bounds of long runs of microbatches from short ones: docs/proofs/search.md has the argument.

With X_k the start of microbatch k's first F, e(n) is the least X_{k+n} - X_k that n + 1
microbatches in a row can have (a *step*), and f(n) the least makespan of n microbatches.
"""
