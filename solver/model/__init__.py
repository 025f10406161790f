"""The finite CP-SAT model: times, variables, constraints, objective; docs/proofs/model.md."""
