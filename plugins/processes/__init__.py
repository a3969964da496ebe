"""Runs a case in another process: a fresh one, a separate one, one of a pair, or an instance.

Workers are in plugins/fleet: pytest-xdist starts them, and a worker measures many cases.
"""
