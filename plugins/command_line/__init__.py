"""Declares the options, and suggests corrections for wrong ones."""
