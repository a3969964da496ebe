"""Current PyTorch weights of PopART's kernels, for comparison with NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable

import numpy as np

if TYPE_CHECKING:
    from ipubench.fixtures.runtimes.onnx.modules import Kernel

#: PyTorch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell).
IN_ONNX = (0, 3, 1, 2)


def weights_of(kernel: Kernel, names: Iterable[str]) -> Dict[str, Any]:
    """Return the weights of a kernel, float32, in ONNX's layout."""
    from ipubench.fixtures.runtimes.onnx.modules import Lstm

    values = [weight.detach().float().cpu().numpy() for weight in kernel.parameters()]
    if isinstance(kernel, Lstm):
        values = [_gates_in_onnx(value)[np.newaxis] for value in values]
    return dict(zip(names, values))


def _gates_in_onnx(weight: Any) -> Any:
    blocks = np.split(weight, 4)
    return np.concatenate([blocks[index] for index in IN_ONNX])
