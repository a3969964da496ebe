"""Stored baselines: write one, read one, and say in one message what is wrong with a file.

A baseline is a JSON document in pytest-benchmark's format (``pytest-benchmark compare`` reads it)
with one more top-level key, ``ipubench``, that holds the version of our part of the format. Its
entries are keyed by the case, the hash of its configuration and the fingerprint of its device.

Format history: see plugins/baseline/format.py.
"""

from ipubench.plugins.baseline.entries import Benchmark, Key, find, is_gone, key_of, measured
from ipubench.plugins.baseline.format import FORMAT, BaselineError
from ipubench.plugins.baseline.store import (
    baseline_path,
    change,
    check_writable,
    exists,
    load_all,
    load_document,
    save,
    write,
)

__all__ = [
    "FORMAT",
    "BaselineError",
    "Benchmark",
    "Key",
    "baseline_path",
    "change",
    "check_writable",
    "exists",
    "find",
    "is_gone",
    "key_of",
    "load_all",
    "load_document",
    "measured",
    "save",
    "write",
]
