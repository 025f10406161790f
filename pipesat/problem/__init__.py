"""What a pipeline is: stages, devices, routes, microbatches, variants; made, read and written."""
