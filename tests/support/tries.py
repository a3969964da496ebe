"""How many examples hypothesis tries. Each run tries others."""

from __future__ import annotations

import sys

from hypothesis import settings

# What Python 3.8 may do otherwise than 3.11 does not depend on numbers, so it tries fewer.
SHARE = 1.0 if sys.version_info >= (3, 9) else 0.4


def tries(count: int) -> settings:
    """Return the settings of a test that tries ``count`` examples, under Python 3.8 fewer.

    Without a deadline: a shared machine may stand still for longer than hypothesis allows one.
    """
    return settings(deadline=None, max_examples=round(count * SHARE))
