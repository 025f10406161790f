"""Which (stage, microbatch) is kept, recomputed or offloaded, decided together with the order.

Orders without modes are the guides (:mod:`starts`): along each, as few as needed run in another
mode, those whose backward is farthest away. Then windows of time are searched with modes, copies
and memory in one model (:mod:`window`), in which memory is counted over time, as copies ask.
"""
