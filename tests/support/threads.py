"""Runs PyTorch on one thread.

Next to pytest-xdist's other worker, two threads on two cores take ten times as long for small
operations.
"""

from __future__ import annotations

from typing import Any

import pytest


def torch_on_one_thread() -> Any:
    """Return PyTorch, or skip the test."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    torch.set_num_threads(1)
    return torch
