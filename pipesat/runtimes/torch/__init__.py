"""Orders as torch.distributed.pipelining runs them: its CSV, its rules, its loaders.

Nothing here imports torch. torch writes I for our B, W for our W and B for our BW; a stage's number
there is its position on the route.
"""
