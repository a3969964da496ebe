"""The options that all kernels share: those of the original programs' two drivers."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.fixtures.data.array_feed import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.poplar.options import PARTIALS, parse_options


@dataclass(frozen=True)
class Kernel(CaseConfig):
    """What the drivers of both frameworks offer."""

    use_zero_values: bool = option(False, "synthetic data: zeros instead of random values")
    shards: int = option(1, "IPUs that one model is split over", minimum=1, needs_ipu=True)
    convolution_options: str = option(
        "", "JSON object for the planner of convolutions", ipu_only=True
    )
    report_hw_cycle_count: bool = option(False, "report the device's cycles", needs_ipu=True)

    @property
    def ipus(self) -> int:
        """IPUs that the case needs; 0 for a host."""
        return super().ipus and self.shards * self.replicas

    def check(self) -> None:
        """Refuse what contradicts itself, and on a host what only an IPU has."""
        super().check()
        if self.data == "real":
            raise ValueError("data real: kernels have none, choose synthetic or generated")
        if self.system not in ("host", "ipu"):
            raise ValueError(f"system {self.system}: kernels have host and ipu")
        self.check_planner("convolution_options", self.convolution_options)

    def check_planner(self, name: str, text: str) -> None:
        """Raise ValueError where the options of a planner are malformed or need an IPU."""
        try:
            options = parse_options(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if self.system == "host" and PARTIALS in options:
            raise ValueError(f"{name}: {PARTIALS} changes results and needs an IPU")


@dataclass(frozen=True)
class TensorFlowKernel(Kernel):
    """What the driver of the TensorFlow programs adds."""

    batches_per_step: int = option(1000, "batches run on the device per host call", minimum=1)
    learning_rate: float = option(0.01, "rate of plain gradient descent", minimum=0.0)
    enable_half_partials: bool = option(False, "sum partial results in float16", needs_ipu=True)
    matmul_options: str = option(
        "", "JSON object for the planner of matrix products", ipu_only=True
    )
    xla: str = option(
        "auto",
        "a host's loop compiled by XLA; auto: where that was measured to be faster",
        choices=("auto", "on", "off"),
    )

    @property
    def use_xla(self) -> bool:
        """Whether XLA compiles the loop of a host."""
        return self.xla_is_faster() if self.xla == "auto" else self.xla == "on"

    @property
    def half_matmul_partials(self) -> bool:
        """Whether matrix products sum in float16; fused layers, made of them, have to be told."""
        return (
            self.enable_half_partials or parse_options(self.matmul_options).get(PARTIALS) == "half"
        )

    def xla_is_faster(self) -> bool:
        """Whether XLA was measured to run this case faster on a CPU."""
        return False

    def check(self) -> None:
        """Refuse what the driver refuses: shards, and options without meaning."""
        super().check()
        self.check_planner("matmul_options", self.matmul_options)
        if self.shards > 1:
            raise ValueError("shards: one layer cannot be split over IPUs, only 1 is possible")
        if self.system == "ipu" and self.xla == "off":
            raise ValueError("xla off: an IPU runs programs compiled by XLA only")

    def arrays(self, data: Data, *specs: TensorSpec) -> ArrayFeed:
        """Return the feed of these tensors; generated batches repeat as in the original driver."""
        period = (self.steps + 2) * self.batches_per_step
        return data.arrays(self, specs, period=period, zero_values=self.use_zero_values)
