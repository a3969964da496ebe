"""Finds the cases, and selects those that run here."""
