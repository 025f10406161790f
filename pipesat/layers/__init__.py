"""Layers of a model and how they are cut into stages: files, rules, dynamic programmes, layouts.

docs/plan.md has the formulas and says what is exact.
"""
