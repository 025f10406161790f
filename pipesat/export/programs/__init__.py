"""Orders as Python files for runtimes that build their schedule in Python.

Each file has the order as data, and an adapter that makes the runtime's own objects of it. Stage
numbers in it are places on the route. Nothing here imports a runtime.
"""
