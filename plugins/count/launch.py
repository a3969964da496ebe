"""``python launch.py WORDS``: becomes another program, without address randomisation if allowed.

A container may forbid it: ``IPUBENCH_ADDRESSES`` tells the program which holds.
"""

from __future__ import annotations

import ctypes
import os
import sys

VARIABLE = "IPUBENCH_ADDRESSES"
FIXED, RANDOM = "fixed", "random"
NO_RANDOMISATION, ASK = 0x0040000, 0xFFFFFFFF


def fix_addresses() -> bool:
    """Give the programs that this process becomes the same addresses each time."""
    try:
        personality = ctypes.CDLL(None).personality
    except (OSError, AttributeError):
        return False
    now = personality(ctypes.c_ulong(ASK))
    if now < 0:
        return False
    personality(ctypes.c_ulong(now | NO_RANDOMISATION))
    return bool(personality(ctypes.c_ulong(ASK)) & NO_RANDOMISATION)


if __name__ == "__main__":
    os.environ[VARIABLE] = FIXED if fix_addresses() else RANDOM
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  the words of our own command
