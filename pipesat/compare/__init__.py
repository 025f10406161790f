"""What users do with a problem: solve, compare, frontier, balance, sweep, risk, the report page."""
