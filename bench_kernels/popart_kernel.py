"""The base of all kernels in PopART: the rules and batches of the original driver."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.bench_kernels.kernel import Kernel
from ipubench.fixtures.data.feeds import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.runtimes.kernel_options import GraphOptions


@dataclass(frozen=True)
class PopartKernel(GraphOptions, Kernel):
    """A kernel of the PopART programs' driver."""

    def check(self) -> None:
        """Raise ValueError for contradictory options, and for what only a host or an IPU has."""
        if self.pipeline and self.shards < 2:
            raise ValueError("pipeline: its stages are shards, set shards=2 or more on an IPU")
        super().check()
        if self.recompute and self.mode != "training":
            raise ValueError(f"recompute: {self.mode} has no gradient that would need it")
        if self.engine == "onnxruntime" and self.mode == "training":
            raise ValueError("engine onnxruntime: it cannot train, choose torch or auto")
        if self.tensor_tile_mapping:
            # POPART_TENSOR_TILE_MAP is in no source of PopART from SDK 2.1 on.
            raise ValueError(
                "tensor_tile_mapping: PopART writes the mapping up to SDK 2.0 only; leave it out "
                "and give --profile=DIR: Poplar's report contains the tile mapping"
            )
        if self.system == "ipu":
            self._check_ipu()

    def _check_ipu(self) -> None:
        if self.precision == "16.32":
            raise ValueError("precision 16.32: PopART's layers take weights of their inputs' type")
        if self.engine != "auto":
            raise ValueError(f"engine {self.engine}: only a host has engines; an IPU runs PopART")
        if self.shards > 1 and self.mode == "inference":
            # PopART would leave the second IPU idle, and refuse more of them (graphcore/popart,
            # willow/src/transforms/auto_virtual_graph.cpp).
            raise ValueError(
                f"shards={self.shards}: inference is one operation, which is not split over IPUs: "
                "use shards=1, or replicas for more IPUs"
            )
        if self.pipeline and self.batches_per_step < self._stages:
            back = ", forward and back," if self._stages > self.shards else ""
            raise ValueError(
                f"pipeline: {self._stages} stages{back} need batches_per_step of {self._stages} or "
                "more"
            )
        if not self.auto_sharding and self.shards > 2:
            raise ValueError("auto_sharding off: there are two places, use shards=2")

    @property
    def fewest_batches(self) -> int:
        """The fewest batches that fill the pipeline."""
        return self._stages if self.pipeline else 1

    @property
    def _stages(self) -> int:
        """Stages of a pipeline, which all work at the same time.

        In training each shard has a forward and a backward stage, except the last, where they are
        one (graphcore/popart, willow/src/transforms/pipeline.cpp).
        """
        return 2 * self.shards - 1 if self.mode == "training" else self.shards

    def arrays(self, data: Data, *specs: TensorSpec) -> ArrayFeed:
        """Return the feed of these tensors."""
        return data.arrays(self, specs, zero_values=self.use_zero_values)
