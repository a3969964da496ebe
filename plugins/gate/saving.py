"""What a case needs before it can be part of a baseline. Pure functions."""

from __future__ import annotations

from typing import Optional, Sequence

from ipubench.plugins.gate.countable import too_disturbed
from ipubench.plugins.gate.decision import Need


def saving_need(clean: Sequence[bool], wanted: int) -> Optional[Need]:
    """Return the need for another fresh process; None if there are enough, or more do not help.

    ``clean``: for each fresh process so far, whether it was undisturbed. ``wanted``: how many
    undisturbed ones a baseline should have. At most twice as many are measured.
    """
    enough = sum(clean) >= wanted or len(clean) >= 2 * wanted or too_disturbed(clean)
    return None if enough else Need(processes=1)
