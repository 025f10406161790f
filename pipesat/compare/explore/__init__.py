"""A local page to play with: change a pipeline, see all schedules, and let the solver run.

``stated`` is a pipeline as the page states it. ``known`` has what a run knows, of any memory.
``answers`` are what the page asks for. ``server`` refuses all but that page.
"""
