"""Compares releases of published packages, to find what the gate finds in other people's code."""
