"""Attacks on every reader of files and messages that others may have written."""
