"""The instructions of a call of a case, in each process that counted them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence, Tuple

from ipubench.plugins.record.structs import CountedCase, Facts, Instructions

UNIT = "instructions/call"


@dataclass(frozen=True)
class Counts:
    """The instructions per call of one case, in each process that counted them."""

    values: Tuple[float, ...] = ()
    #: Why the case cannot be judged by its instructions, or ''.
    uncountable: str = "nothing counted it"
    how: Facts = field(default_factory=dict)
    functions: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_processes(cls, found: Sequence[CountedCase]) -> Counts:
        """Return the counts of several processes."""
        counted = sorted((one for one in found if one.per_call is not None), key=_least_first)
        reasons = [one.uncountable for one in found if one.uncountable]
        return cls(
            tuple(one.per_call for one in found if one.per_call is not None),
            next(iter(reasons), "" if counted else "nothing counted it"),
            next((one.how for one in found if one.how), {}),
            counted[0].functions if counted else {},
        )

    @classmethod
    def of_record(cls, found: Optional[Instructions]) -> Optional[Counts]:
        """Return what :meth:`for_record` made; None if a record has no counts."""
        if found is None:
            return None
        return cls(tuple(found.processes), found.uncountable, found.how, found.functions)

    def for_record(self) -> Instructions:
        """Return the counts in a record."""
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
        """The instructions of a call: the least count. There must be one."""
        return min(self.values)

    @property
    def spread(self) -> float:
        """The relative difference between the largest and the least count."""
        return max(self.values) / min(self.values) - 1 if self.values else 0.0

    def is_found_again(self, tolerance: float) -> bool:
        """Whether a second process came to the least count, except for this relative difference."""
        first, *others = sorted(self.values)
        return bool(others) and others[0] / first - 1 <= tolerance


def _least_first(one: CountedCase) -> float:
    return one.per_call or 0.0
