"""Stored baselines: write one, read one, and say in one message what is wrong with a file.

A baseline is a JSON document in pytest-benchmark's format (``pytest-benchmark compare`` reads it)
with one more top-level key, ``ipubench``, that holds the version of our part of the format. Its
entries are keyed by the case, the hash of its configuration and the fingerprint of its device.
"""
