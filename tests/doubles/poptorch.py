"""A stand-in for the part of PopTorch that the project uses.

It offers the names and signatures of the SDK and nothing else
(tests/runtimes/test_sdk_contract.py checks them against the SDK's published API), records every
call, and runs a wrapped model on the CPU. It is as strict as the SDK about what the project can get
wrong: types of arguments, the number of IPUs, how full a pipeline is, sizes of inputs, and the life
of an executor.

Tests install :func:`as_module` as ``poptorch`` and control it with :data:`recorder`, which the
module itself does not offer.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Optional, Set, Tuple

from tests.doubles.poptorch_options import (
    Options,
    OutputMode,
    OverlapMode,
    ShardedExecution,
    recorded,
    recorder,
)
from tests.doubles.record import module_of

# Some import them from here.
__all__ = [
    "Error",
    "Options",
    "OutputMode",
    "OverlapMode",
    "PoplarExecutor",
    "ShardedExecution",
    "as_module",
    "recorded",
    "recorder",
]
# The contents of `import poptorch`; everything else here belongs to the stand-in.
OFFERED = (
    "BeginBlock",
    "Error",
    "Options",
    "OutputMode",
    "OverlapMode",
    "PoplarExecutor",
    "ShardedExecution",
    "identity_loss",
    "inferenceModel",
    "set_overlap_for_input",
    "set_overlap_for_output",
    "trainingModel",
)

MOST_IPUS = 64
NO_EXECUTABLE = "Model has not been compiled or has been destroyed."


def as_module() -> ModuleType:
    """Return a module ``poptorch`` with the offered names only; the recorder starts empty."""
    recorder.reset()
    return module_of("poptorch", OFFERED, globals())


class Error(Exception):
    """Raised by PopTorch's C++ part."""


@recorded
def BeginBlock(layer_to_call: Any, user_id: Optional[str] = None, ipu_id: Any = None) -> Any:
    """Mark a layer, in place, as the first one of a stage."""

    def enter(module: Any, inputs: Any) -> None:
        recorder.stages.append(ipu_id)

    layer_to_call.register_forward_pre_hook(enter)
    layer_to_call._double_ipu = ipu_id
    return layer_to_call


@recorded
def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Return the tensors and mark their transfer to overlap."""
    assert isinstance(mode, OverlapMode)
    recorder.overlapping += mode is not OverlapMode.NoOverlap
    return input_tensors


@recorded
def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Return the tensors and mark their transfer to overlap."""
    assert isinstance(mode, OverlapMode)
    recorder.overlapping += mode is not OverlapMode.NoOverlap
    return output_tensors


@recorded
def inferenceModel(model: Any, options: Optional[Options] = None) -> PoplarExecutor:
    """Wrap a model; nothing is compiled yet."""
    return PoplarExecutor(model, options or Options(), False, "double")


@recorded
def trainingModel(
    model: Any, options: Optional[Options] = None, optimizer: Any = None
) -> PoplarExecutor:
    """Wrap a model with its loss; nothing is compiled yet."""
    return PoplarExecutor(model, options or Options(), True, "double", optimizer)


@recorded
def identity_loss(x: Any, reduction: str) -> Any:
    """Mark a tensor as the loss, reduced to one number."""
    assert reduction in ("sum", "mean", "none")
    recorder.losses += 1
    return x.sum() if reduction == "sum" else x.mean() if reduction == "mean" else x


class PoplarExecutor:
    """A wrapped model. It compiles and attaches at ``compile`` or at its first call."""

    def __init__(
        self,
        model: Any,
        options: Any,
        training: bool,
        poptorch_version: str,
        optimizer: Any = None,
        user_model: Any = None,
    ) -> None:
        if not isinstance(options, Options):
            raise ValueError("Invalid type: 'options' must be of type poptorch.Options")
        options._freeze()
        self._model = model
        self._training = training
        self._optimizer = optimizer
        self._values: Dict[str, Any] = dict(options._values)
        self._tiles: int = options._locations._values.get("tiles", 0)
        self._compiled: Any = None
        #: Whether transfers overlapped with computing in the last call.
        self.overlapped = False
        self._attached = False
        self._destroyed = False
        self._runs = 0
        recorder.executors.append(self)

    @recorded
    def compile(self, *args: Any, **kwargs: Any) -> None:
        self._refuse_if_destroyed()
        self._check_target()
        self._check_stages()
        self._check_inputs(args[0])
        self._compile_or_load(args[0])
        self._compiled = (args[0].shape, args[0].dtype)
        if "offline" in self._values:
            return
        if recorder.attach_error:
            raise Error(recorder.attach_error)
        self._attached = True

    @recorded
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        self._refuse_if_destroyed()
        assert "offline" not in self._values, "Trying to run a model on an offline device"
        if not self._attached:
            self.compile(*args, **kwargs)
        self._check_inputs(args[0])
        self._runs += 1
        recorder.overlapping = 0
        if self._training:
            return self._train(args)
        images = args[0]
        if self._synthetic and self._tiles:
            # PopART makes the streams of overlapped transfers, and leaves them unconnected.
            raise Error("Unconnected stream: input")
        if self._synthetic:
            images = torch.randn(images.shape).to(images.dtype)
        with torch.no_grad():
            results = self._model(images, *args[1:])
        self._check_overlap()
        return results

    def _train(self, inputs: Any) -> Any:
        """Run a step of the optimiser on the CPU."""
        recorder.losses = 0
        self._optimizer.zero_grad()
        loss = self._model(*inputs)
        assert recorder.losses == 1, "a training model marks one loss"
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    @recorded
    def getLatency(self) -> Tuple[float, float, float]:
        """Return min, max and mean seconds of the last run; without transfers they are unknown."""
        if not self._runs or self._synthetic:
            return (0.0, 0.0, 0.0)
        return (0.001 * self._runs, 0.004 * self._runs, 0.002 * self._runs)

    @recorded
    def destroy(self) -> None:
        self._attached = False
        self._destroyed = True

    @recorded
    def isAttachedToDevice(self) -> bool:
        return self._attached

    @property
    def _synthetic(self) -> bool:
        return bool(self._values.get("synthetic_data"))

    def _compile_or_load(self, images: Any) -> None:
        """Store an executable in the cache folder, or reuse one of the same program."""
        exported = map(
            os.environ.get, ("POPTORCH_CACHE_DIR", "POPART_CACHE_DIR", "POPXL_CACHE_DIR")
        )
        folder = self._values.get("cache") or next(filter(None, exported), "")
        if not folder or self._values.get("use_model"):
            return
        program = f"{sum(p.numel() for p in self._model.parameters())}-{tuple(images.shape)}"
        path = Path(folder) / f"{hashlib.md5(program.encode()).hexdigest()}.popef"  # noqa: S324  no secret
        if not path.exists():
            path.write_bytes(b"executable")

    def _refuse_if_destroyed(self) -> None:
        # PopTorch would compile again without being asked, which takes minutes.
        if self._destroyed:
            raise Error(NO_EXECUTABLE)

    def _check_target(self) -> None:
        """Refuse settings that an offline target cannot have (CompilerImpl.cpp)."""
        if "offline" not in self._values:
            return
        if self._values.get("use_model"):
            raise Error("Offline compilation is not supported with the IPU Model")
        if "ipu_id" in self._values:
            raise Error("Offline compilation is not supported with an IPU id")

    def _check_stages(self) -> None:
        """Refuse what PopTorch and PopART refuse when they compile."""
        ids: Set[int] = {getattr(module, "_double_ipu", 0) for module in self._model.modules()}
        stages = max(ids) + 1
        ipus = stages * self._values.get("replication_factor", 1)
        if ipus > MOST_IPUS:
            raise Error(f"{ipus} IPUs: at most {MOST_IPUS} can be had")
        if ipus & (ipus - 1) and not self._values.get("auto_round_num_ipus"):
            raise Error(f"{ipus} IPUs: the number of IPUs must be a power of 2")
        sharded = "strategy" in self._values
        if not sharded and self._values.get("device_iterations", 1) < stages:
            raise Error(
                "For pipelining, depth (batchesPerStep) must equal at least the number of pipeline "
                f"stages ({stages})"
            )

    def _check_overlap(self) -> None:
        """Overlap the marked transfers, or silently do not if there are too few iterations.

        poptorch_popart: Compiler.cpp; PopART: transforms/decomposeloops.cpp.
        """
        if not recorder.overlapping:
            return
        if "strategy" not in self._values:
            raise Error("Overlapped IO is not supported with poptorch.PipelinedExecution")
        if not self._tiles:
            raise Error("No IO tiles allocated")
        if self._values.get("output_mode", OutputMode.All) not in (OutputMode.All, OutputMode.Sum):
            raise Error("Unsupported output mode for overlapped IO")
        self.overlapped = self._values.get("device_iterations", 1) >= 3

    def _check_inputs(self, images: Any) -> None:
        if images.requires_grad:
            raise Error("An input tensor to an inferenceModel has requires_grad set")
        if self._compiled not in (None, (images.shape, images.dtype)):
            raise Error(f"compiled for {self._compiled}, not {images.shape}, {images.dtype}")
        runs = self._values.get("device_iterations", 1) * self._values.get("replication_factor", 1)
        assert len(images) % runs == 0, f"a batch of {len(images)} cannot be divided by {runs}"
