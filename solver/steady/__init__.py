"""Steady state: one period of a schedule that repeats for ever, and what finite schedules it gives.

:mod:`pipesat.solver.steady.schedules` is the door. A *repetend* is a period's ops with their times
(``repetend``); ``modulo`` makes one greedily, ``model`` by CP-SAT (``variables``, ``constraints``,
``memory``); ``search`` shortens the period. What is unrolled is shortened by
:mod:`pipesat.solver.packing`.
"""
