"""What the ops of a stage are made of: parts on streams, and how long ops and pairs of them take.

``parts`` and ``file`` are the data, with the parts of one or two ops as a job shop, ``bounds`` what
is known of a shop without search, ``answer`` the times of a problem's ops and pairs, ``trace``
parts from a profiler's trace.
"""
