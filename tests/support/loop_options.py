"""The options of a loop over batches, for tests that need no whole case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoopOptions:
    """Follows ipubench.fixtures.runtimes.shared.LoopConfig."""

    mode: str = "inference"
    precision: str = "32.32"
    batches_per_step: int = 1
    learning_rate: float = 0.01
    use_xla: bool = False
