"""The instructions that a call of a case takes, in each process that counted them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ipubench.fixtures.case.untrusted import NUMBER, has_fields
from ipubench.plugins.record.text import percent

#: The counts of a countable case differ by no more between processes of equal code.
LARGEST_SPREAD = 0.005
UNIT = "instructions/call"


@dataclass(frozen=True)
class Counts:
    """Instructions a call of one case, in each process that counted them."""

    values: Tuple[float, ...] = ()
    reason: str = ""  # why it is uncountable, if it is known without a second process
    how: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_lines(cls, lines: Sequence[Mapping[str, Any]]) -> Counts:
        """Return the counts of several processes, each as a journal's line has it."""
        values = [float(one["per_call"]) for one in lines if "per_call" in one]
        reasons = [str(one["uncountable"]) for one in lines if "uncountable" in one]
        hows = [one["how"] for one in lines if "how" in one]
        functions = [one["functions"] for one in lines if "functions" in one]
        return cls(
            tuple(values),
            next(iter(reasons), ""),
            next(iter(hows), {}),
            next(iter(functions), {}),
        )

    @classmethod
    def of_record(cls, plain: Any) -> Optional[Counts]:
        """Return what :meth:`as_dict` made; None where a record has no counts."""
        if not has_fields(plain, {"processes": list, "how": dict}):
            return None
        values = [float(one) for one in plain["processes"] if _is_count(one)]
        functions = plain.get("functions", {})
        known = functions if isinstance(functions, dict) else {}
        return cls(
            tuple(values),
            str(plain.get("uncountable") or ""),
            plain["how"],
            {str(name): float(value) for name, value in known.items() if _is_count(value)},
        )

    def as_dict(self) -> Dict[str, Any]:
        """Return JSON values for a record."""
        return {
            "per_call": self.value if self.values else None,
            "unit": UNIT,
            "processes": list(self.values),
            "spread": self.spread,
            "uncountable": self.uncountable,
            "how": dict(self.how),
            "functions": dict(self.functions),
        }

    @property
    def value(self) -> float:
        """The instructions of a call; there must be a count."""
        return float(median(self.values))

    @property
    def spread(self) -> float:
        """The relative difference between the largest and the least count."""
        return max(self.values) / min(self.values) - 1 if self.values else 0.0

    @property
    def uncountable(self) -> str:
        """Why the case cannot be judged by its instructions, or ''."""
        if self.reason:
            return self.reason
        if self.spread > LARGEST_SPREAD:
            return (
                f"its counts differ by {percent(self.spread)} between processes of equal code: "
                "time, chance or addresses decide what it does"
            )
        return "" if self.values else "nothing counted it"


def _is_count(value: Any) -> bool:
    return has_fields({"value": value}, {"value": NUMBER}) and value > 0
