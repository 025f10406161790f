"""Random problems through every command; every claim held against a judge of its own."""
