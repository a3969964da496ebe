"""Takes one case from its step to its record."""
