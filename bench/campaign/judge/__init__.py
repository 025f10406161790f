"""What is true, restated from the formats' documentation alone: nothing here imports pipesat."""
