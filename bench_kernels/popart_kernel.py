"""The options of the original PopART driver."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.bench_kernels.kernel import Kernel
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.array_feed import ArrayFeed, TensorSpec
from ipubench.fixtures.data.provider import Data


@dataclass(frozen=True)
class PopartKernel(Kernel):
    """What the driver of the PopART programs adds."""

    batches_per_step: int = option(1000, "batches run on the device per host call", minimum=1)
    use_zero_values: bool = option(False, "weights, inputs and labels of zeros, not random values")
    learning_rate: float = option(0.01, "rate of plain gradient descent", minimum=0.0)
    auto_sharding: bool = option(
        True,
        "PopART places the operations on the shards; off: the layer on the first of two, its loss "
        "on the second",
        ipu_only=True,
    )
    pipeline: bool = option(False, "the shards work on different batches", needs_ipu=True)
    recompute: bool = option(
        False, "training: compute activations again for the gradient instead of keeping them"
    )
    tensor_tile_mapping: bool = option(
        False, "--save-graph also writes tile_mapping.json: which tile holds what", needs_ipu=True
    )
    engine: str = option(
        "auto",
        "what runs the graph on a host; auto takes the fastest measured for the case",
        choices=("auto", "onnxruntime", "torch"),
    )

    def torch_is_faster(self, dtype: str) -> bool:
        """Whether PyTorch was measured to run the case without training faster on a CPU.

        ``dtype``: the type it would compute in, float32 or bfloat16; ONNX Runtime has float32.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Refuse what contradicts itself, and what only a host or only an IPU has."""
        if self.pipeline and self.shards < 2:
            raise ValueError("pipeline: its stages are shards, set shards=2 or more on an IPU")
        super().check()
        if self.recompute and self.mode != "training":
            raise ValueError(f"recompute: {self.mode} has no gradient to compute again for")
        if self.engine == "onnxruntime" and self.mode == "training":
            raise ValueError("engine onnxruntime: it cannot train, choose torch or auto")
        if self.system == "ipu":
            self._check_ipu()

    def _check_ipu(self) -> None:
        if self.precision == "16.32":
            raise ValueError("precision 16.32: PopART's layers take weights of their inputs' type")
        if self.engine != "auto":
            raise ValueError(f"engine {self.engine}: it is for a host, an IPU runs PopART")
        if self.pipeline and self.batches_per_step < self.shards:
            raise ValueError(
                f"pipeline: {self.shards} stages need batches_per_step of {self.shards} or more"
            )
        if not self.auto_sharding and self.shards > 1:
            if self.mode == "inference":
                raise ValueError("auto_sharding off: inference is one operation, use shards=1")
            if self.shards > 2:
                raise ValueError("auto_sharding off: there are two places, use shards=2")

    def arrays(self, data: Data, *specs: TensorSpec) -> ArrayFeed:
        """Return the feed of these tensors."""
        return data.arrays(self, specs, zero_values=self.use_zero_values)
