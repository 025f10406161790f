"""Cut layers, place and order them: plan searches, advise answers beside what users know."""
