"""The instructions that a call of a case takes, in each process that counted them."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Mapping, Optional, Sequence, Tuple

from ipubench.plugins.record.structs import CountedCase, Facts, Instructions
from ipubench.plugins.record.text import percent

#: The counts of a countable case differ by no more between processes of equal code.
LARGEST_SPREAD = 0.005
UNIT = "instructions/call"


@dataclass(frozen=True)
class Counts:
    """Instructions a call of one case, in each process that counted them."""

    values: Tuple[float, ...] = ()
    reason: str = ""  # why it is uncountable, if it is known without a second process
    how: Facts = field(default_factory=dict)
    functions: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_processes(cls, found: Sequence[CountedCase]) -> Counts:
        """Return what several processes counted."""
        return cls(
            tuple(one.per_call for one in found if one.per_call is not None),
            next((one.uncountable for one in found if one.uncountable), ""),
            next((one.how for one in found if one.how), {}),
            next((one.functions for one in found if one.functions), {}),
        )

    @classmethod
    def of_record(cls, found: Optional[Instructions]) -> Optional[Counts]:
        """Return what :meth:`for_record` made; None if a record has no counts."""
        if found is None:
            return None
        return cls(tuple(found.processes), found.uncountable, found.how, found.functions)

    def for_record(self) -> Instructions:
        """Return what a record has of them."""
        return Instructions(
            self.values,
            self.value if self.values else None,
            self.spread,
            self.uncountable,
            self.how,
            self.functions,
        )

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
