"""What one measurement is, in memory and on disk; pure functions, no hooks."""
