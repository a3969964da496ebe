"""Options of a loop over batches, for tests without a whole case."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.fixtures.case.options import option
from ipubench.fixtures.runtimes.kernel_options import LoopOptions


@dataclass(frozen=True)
class FewBatches(LoopOptions):
    """One float32 batch per call; on a host, TensorFlow's loop without XLA."""

    precision: str = option("32.32", "as of all cases")
    batches_per_step: int = option(1, "as of all kernels")
