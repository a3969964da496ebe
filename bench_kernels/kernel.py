"""The base of all kernels: the rules and batches of the original programs' two drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, Mapping

from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.poplar.poplar_options import PARTIALS, parse_options
from ipubench.fixtures.runtimes.kernel_options import KernelOptions, LoopOptions

#: The ``unplanned`` of layers without convolutions.
NO_CONVOLUTION = {"convolution_options": "it has no convolution"}


@dataclass(frozen=True)
class Kernel(KernelOptions):
    """The rules of the drivers of both frameworks."""

    #: Options of planners that this kernel does not use, with the reasons.
    unplanned: ClassVar[Mapping[str, str]] = {}

    def idle(self) -> Dict[str, str]:
        """Return unused options, including planners of operations that the kernel does not have."""
        return {**super().idle(), **self.unplanned}

    @property
    def ipus(self) -> int:
        """IPUs that the case needs; 0 for a host."""
        return super().ipus and self.shards * self.replicas

    def check(self) -> None:
        """Raise ValueError for contradictory options, and on a host for what only an IPU has."""
        super().check()
        if self.data == "real":
            raise ValueError("data real: kernels have none, choose synthetic or generated")
        if self.system not in ("host", "ipu"):
            raise ValueError(f"system {self.system}: kernels have host and ipu")
        self.check_planner("convolution_options", self.convolution_options)

    def check_planner(self, name: str, text: str) -> None:
        """Raise ValueError if the options of a planner are malformed or need an IPU."""
        try:
            options = parse_options(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if self.system == "host" and PARTIALS in options:
            raise ValueError(f"{name}: {PARTIALS} changes results and needs an IPU")


@dataclass(frozen=True)
class TensorFlowKernel(LoopOptions, Kernel):
    """A kernel of the TensorFlow programs' driver."""

    def check(self) -> None:
        """Raise ValueError for what the driver refuses: shards, and meaningless options."""
        super().check()
        self.check_planner("matmul_options", self.matmul_options)
        if self.shards > 1:
            raise ValueError("shards: one layer cannot be split over IPUs, only 1 is possible")
        if self.system == "ipu" and self.xla == "off":
            raise ValueError("xla off: an IPU runs programs compiled by XLA only")

    def idle(self) -> Dict[str, str]:
        """Return unused options: generated batches have their numbers as values."""
        zeros = {"use_zero_values": f"it needs data=synthetic, and this is {self.data}"}
        return {**super().idle(), **({} if self.data == "synthetic" else zeros)}

    def arrays(self, data: Data, *specs: TensorSpec) -> ArrayFeed:
        """Return the feed of these tensors; generated batches repeat as in the original driver."""
        period = (self.steps + 2) * self.batches_per_step
        return data.arrays(self, specs, period=period, zero_values=self.use_zero_values)
