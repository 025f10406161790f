"""Sweeps: a grid of problems, one solve each, one row each, on one machine or on a Ray cluster."""
