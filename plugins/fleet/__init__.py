"""Measures one run with several workers, on this machine or on other hosts."""
