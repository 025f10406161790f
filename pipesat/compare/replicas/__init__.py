"""Which sequence goes to which replica and microbatch, and in which order microbatches enter.

``replay`` says what each takes and times a schedule for many replicas at once, ``rules`` has
what frameworks do, ``search`` improves,
``dealer`` joins them for a training loop. numpy alone: nothing here needs the solver.
"""
