"""PyTorch on one thread: with two on two cores beside pytest-xdist's other worker, which computes
as well, small operations take ten times as long.
"""

from __future__ import annotations

from typing import Any

import pytest


def torch_on_one_thread() -> Any:
    """Return PyTorch, or skip the test."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    torch.set_num_threads(1)
    return torch
