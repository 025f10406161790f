"""The interpreted engines that compiled loops are held against: ops one by one, from the rules."""
