"""The number of examples that hypothesis tries. Each run tries others."""

from __future__ import annotations

import sys

from hypothesis import settings

# Python 3.8 hardly differs in numbers from 3.11, so it tries fewer.
SHARE = 1.0 if sys.version_info >= (3, 9) else 0.4


def tries(count: int) -> settings:
    """Return the settings of a test that tries ``count`` examples, or fewer with Python 3.8.

    Without a deadline: a shared machine may pause for longer than hypothesis allows.
    """
    return settings(deadline=None, max_examples=round(count * SHARE))
