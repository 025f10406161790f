"""Reading and writing: problem, schedule and result files."""
