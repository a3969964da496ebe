"""Counts the instructions of a case's call: exact where the time of a shared machine is not."""
