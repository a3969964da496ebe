"""Judges each case after its call and sets the exit code."""
