"""A measurement in memory and on disk; pure functions, no hooks."""
