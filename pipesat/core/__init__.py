"""What a problem, an op, a schedule and a result are, and the rules that hold for them."""
