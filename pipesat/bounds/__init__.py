"""What no schedule can beat, and whether there is one at all: arithmetic, no search."""
