"""The least time of a job shop of parts, with its proof."""
