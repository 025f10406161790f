"""The finite CP-SAT model: times, variables, constraints, objective. docs/model.md explains it."""
