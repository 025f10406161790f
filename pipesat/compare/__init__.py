"""What Python and the command line call to compare schedules, memory, orders, risks and grids."""
