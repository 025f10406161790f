"""An order of ops and what follows from it: times, metrics, deadlock, results."""
