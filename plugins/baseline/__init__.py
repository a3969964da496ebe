"""Stored baselines: write one, read one, and say in one message what is wrong with a file.

A baseline is a JSON document in pytest-benchmark's format (``pytest-benchmark compare`` reads it)
with one more top-level key, ``ipubench``, that holds the version of our part of the format. Its
entries are keyed by the case, the hash of its configuration and the fingerprint of its device.

Format history: see plugins/baseline/format.py.
"""

from ipubench.plugins.baseline.entries import Benchmark
from ipubench.plugins.baseline.entries import Key
from ipubench.plugins.baseline.entries import find
from ipubench.plugins.baseline.entries import is_gone
from ipubench.plugins.baseline.entries import key_of
from ipubench.plugins.baseline.entries import measured
from ipubench.plugins.baseline.format import FORMAT
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.store import baseline_path
from ipubench.plugins.baseline.store import change
from ipubench.plugins.baseline.store import exists
from ipubench.plugins.baseline.store import load_all
from ipubench.plugins.baseline.store import load_document
from ipubench.plugins.baseline.store import save
from ipubench.plugins.baseline.store import write

__all__ = [
    "FORMAT",
    "BaselineError",
    "Benchmark",
    "Key",
    "baseline_path",
    "change",
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
