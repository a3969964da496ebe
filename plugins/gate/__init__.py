"""Decides whether the code is slower; pure functions."""
