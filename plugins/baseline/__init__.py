"""Reads and writes stored baselines, and reports what is wrong with a file in one message.

A baseline is a JSON document in pytest-benchmark's format (``pytest-benchmark compare`` reads it)
with one more top-level key, ``ipubench``, that holds the version of our part of the format. Its
entries are keyed by the case, the hash of its configuration and the fingerprint of its device.
"""
