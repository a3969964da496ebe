"""Facts about this process in the session: whether it is a worker, and how many workers measure."""

from __future__ import annotations

import pytest

#: How many workers of pytest-xdist measure.
workers_key = pytest.StashKey[int]()
