"""Measures a case: from its step to its record."""
