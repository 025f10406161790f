"""What several hand-written schedules share: rows, groups, building blocks, gap filling."""
