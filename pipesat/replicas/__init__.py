"""Which sequence goes to which replica and microbatch, and in which order microbatches enter.

``costs`` says what each takes, ``replay`` times a schedule for many replicas at once, ``rules`` has
what frameworks do, ``shares`` how large a replica's microbatches should be, ``search`` improves,
``dealer`` joins them for a training loop. numpy alone: nothing here needs the solver.
"""
