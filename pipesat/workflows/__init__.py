"""What users do, each joining several rooms: the command line and ``import pipesat`` call it."""
