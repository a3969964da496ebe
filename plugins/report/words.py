"""How a run's comparison is called, on the terminal and in its report."""

from __future__ import annotations

import pytest

from plugins.gating import comparison_key
from plugins.policy import policy_of
from plugins.units import percent


def compared_with(config: pytest.Config) -> str:
    """Return the baseline, or the other interpreter; '' where nothing is compared."""
    comparison = config.stash.get(comparison_key, None)
    if comparison is not None:
        return str(comparison.path)
    return str(config.option.against or "")


def judged_by(config: pytest.Config) -> str:
    """Return what judges the run: the gate, a policy, or nothing."""
    policy = policy_of(config)
    if policy is None:
        return "no gate"
    return policy.name if policy.gate is None else f"gate {percent(policy.gate)}"
