"""One question, one answer: which schedule, split and memory for these layers on these devices."""
