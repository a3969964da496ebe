"""PopART's kernels at small sizes, and their NumPy results."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from ipubench.bench_kernels.bench_popart_conv import PopartConv, conv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm, lstm
from ipubench.fixtures.data.images.feed import ImageFolder
from ipubench.fixtures.data.provider import Data
from tests.support import onnx_reference as reference

Array = Any  # float64 np.ndarray
LSTMS = [
    PopartLstm(batch_size=1, timesteps=1, hidden_size=8),
    PopartLstm(batch_size=3, timesteps=5, hidden_size=16),
    PopartLstm(batch_size=4, timesteps=6, hidden_size=40),
]
CONVS = [
    PopartConv(
        batch_size=2, input_width=9, input_height=8, channel_size=3, filter_number=5
    ),
    PopartConv(
        batch_size=1, input_width=5, input_height=7, channel_size=2, filter_number=4,
        kernel_size=3, padding=1, stride=1,
    ),
    PopartConv(
        batch_size=2, input_width=6, input_height=5, channel_size=16, filter_number=4,
        kernel_size=2, padding=0, stride=2,
    ),
]  # fmt: skip
KERNELS: List[Any] = [*LSTMS, *CONVS]


def no_images() -> ImageFolder:
    raise AssertionError("kernels need no images")


DATA = Data(no_images)


def ready(popart: Any, config: Any) -> Any:
    """Return the case's step after its first batch."""
    config.check()
    network = lstm if isinstance(config, PopartLstm) else conv
    step = popart.loop(lambda dtype: network(config, dtype), config, config.feed(DATA))
    step.build()
    assert step.compile()  # parsed for each case
    return step


def first_weights(config: Any) -> Dict[str, Array]:
    from onnx import numpy_helper

    network = (lstm if isinstance(config, PopartLstm) else conv)(config, "float32")
    values = network.proto.graph.initializer
    return {value.name: numpy_helper.to_array(value).astype(np.float64) for value in values}


def batches_of(step: Any) -> List[Dict[str, Array]]:
    """Return the alternating batches: float64, labels as whole numbers."""
    return [
        {
            name: np.array(numpy_of(value), np.int64 if name == "labels" else np.float64)
            for name, value in batch.items()
        }
        for batch in step.engine.ring
    ]


def first_batch(step: Any) -> Dict[str, Array]:
    """Return the batch that ran during compiling."""
    return batches_of(step)[0]


def numpy_of(value: Any) -> Array:
    return value.float().cpu().numpy() if hasattr(value, "float") else value


def expected(config: Any, weights: Dict[str, Array], batch: Dict[str, Array]) -> Dict[str, Any]:
    if isinstance(config, PopartLstm):
        found: Dict[str, Any] = {"output": reference.lstm(weights, batch["inputs"])[0][:, None]}
        if config.mode != "inference":
            found["loss"] = reference.lstm_loss(weights, batch["inputs"], batch["labels"])
        return found
    found = {"output": reference.conv(config, weights, batch["inputs"])}
    if config.mode != "inference":
        found["loss"] = reference.conv_loss(config, weights, batch["inputs"], batch["labels"])
    return found


def gradients(config: Any, weights: Dict[str, Array], batch: Dict[str, Array]) -> Dict[str, Array]:
    if isinstance(config, PopartLstm):
        return reference.lstm_gradients(weights, batch["inputs"], batch["labels"])
    return reference.conv_gradients(config, weights, batch["inputs"], batch["labels"])
