"""State tracking: a task on which recurrence pays, and that trains in a minute."""
