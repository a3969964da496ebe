"""A network of four units, weights for tests, and references of networks in TensorFlow."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import numpy as np
import pytest

CLASSES = 10  # classes that the small network distinguishes


def network(norm: str = "group", keep: float = 1.0, classes: int = CLASSES) -> Callable[..., Any]:
    """Return a builder of a network with the units stem, b1, b2 and top.

    With one group it does not matter which channels are in which group.
    """

    def build(tf: Any, dtype: Any = None, group_norm: Any = None) -> Any:
        from ipubench.models.tensorflow.cnn.factory import LayerFactory
        from ipubench.models.tensorflow.cnn.layers import Chain, Classifier, Dropout, Top

        make = LayerFactory(
            tf.float32 if dtype is None else dtype,
            seed=1,
            gain=2.0,
            norm=norm,
            groups=1,
            decay=0.9,
            epsilon=1e-3,
            group_norm=group_norm,
        )
        return Classifier(
            [
                Chain("stem", [make.conv_norm("stem", 3, 8, 3, 2, activation="relu")]),
                Chain("b1", [make.conv_norm("b1", 8, 8, 3, activation="relu")]),
                Chain("b2", [make.conv_norm("b2", 8, 16, 3, 2, activation="relu")]),
                Top("top", [], Dropout(keep, 1), make.dense("top", 16, classes)),
            ]
        )

    return build


class _Undrawn:
    """Constants instead of a layer's weights: zeros, or one broadcast number."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole

    def standard_normal(self, shape: Any, dtype: Any) -> Any:
        return np.zeros(shape if self._whole else 1, dtype)

    def uniform(self, low: float, high: float, shape: Any) -> Any:
        return np.zeros(shape if self._whole else 1, np.float32)


def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give networks that are built and never run one number in place of each kernel."""
    monkeypatch.setattr(np.random, "default_rng", lambda seed: _Undrawn(whole=False))


def draw_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give networks whose shapes alone count kernels of zeros, which is faster."""
    monkeypatch.setattr(np.random, "default_rng", lambda seed: _Undrawn(whole=True))


def vary_norms(classifier: Any, seed: int = 3) -> None:
    """Give norms and biases random values: initial ones would hide most mistakes."""
    random = np.random.default_rng(seed)
    for variable in classifier.variables:
        shape, kind = variable.shape, variable.name.split("/")[-1].split(":")[0]
        if kind in ("gamma", "moving_variance"):
            variable.assign(random.uniform(0.5, 1.5, shape))
        elif kind in ("beta", "bias", "moving_mean"):
            variable.assign(random.normal(0.0, 0.2, shape))


def layers_in_order(part: Any) -> Iterator[Any]:
    """Yield a network's convolutions with norms and its dense layers, in PyTorch's order."""
    from ipubench.models.tensorflow.cnn.layers import ConvNorm, Dense

    if isinstance(part, (ConvNorm, Dense)):
        yield part
    elif isinstance(part, (list, tuple)):
        for item in part:
            yield from layers_in_order(item)
    elif part is not None:
        names = ("units", "layers", "branch", "shortcut", "squeeze", "excite", "dense")
        for name in names:
            yield from layers_in_order(getattr(part, name, None))


def without_weights(torch: Any, build: Callable[[], Any]) -> Any:
    """Return a PyTorch network for :func:`copy_to_torch` without drawing weights."""
    with torch.device("meta"):
        network = build()
    return network.to_empty(device="cpu")


def copy_to_torch(torch: Any, classifier: Any, network: Any) -> None:
    """Copy all variables to ``network``, whose layers are in the order of their use."""
    from ipubench.models.torch.norms import ChannelGroupNorm

    nn = torch.nn
    norms = (nn.BatchNorm2d, ChannelGroupNorm)
    targets: List[Any] = [
        layer for layer in network.modules() if isinstance(layer, (nn.Conv2d, nn.Linear, *norms))
    ]
    for layer in layers_in_order(classifier):
        target = targets.pop(0)
        if hasattr(layer, "conv"):
            _set(torch, target.weight, layer.conv.kernel.numpy().transpose(3, 2, 0, 1))
            target = targets.pop(0)
            assert isinstance(target, norms)
            _set(torch, target.weight, layer.norm.gamma.numpy())
            _set(torch, target.bias, layer.norm.beta.numpy())
            if isinstance(target, nn.BatchNorm2d):
                _set(torch, target.running_mean, layer.norm.moving_mean.numpy())
                _set(torch, target.running_var, layer.norm.moving_variance.numpy())
        else:
            kernel = layer.kernel.numpy().T
            _set(torch, target.weight, kernel.reshape(target.weight.shape))
            _set(torch, target.bias, layer.bias.numpy())
    assert not targets


def _set(torch: Any, parameter: Any, values: Any) -> None:
    with torch.no_grad():
        assert tuple(parameter.shape) == values.shape
        parameter.copy_(torch.tensor(values))


def error(found: Any, expected: Any) -> float:
    """Return the relative error by norm."""
    found, expected = (np.asarray(values).astype(np.float64) for values in (found, expected))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def compiler(tf: Any) -> Any:
    """Return ``jit_compile`` for bfloat16 convolutions: XLA has them if oneDNN does not."""
    from ipubench.models.tensorflow.cnn.operations import has_bfloat16_convolutions

    return None if has_bfloat16_convolutions(tf) else True


def numpy_group_norm(values: Any, gamma: Any, beta: Any, groups: int, epsilon: float) -> Any:
    """Return the group norm of images (N, H, W, C), in float64; group g has g, g + groups, ..."""
    n, h, w, c = values.shape
    grouped = values.astype(np.float64).reshape(n, h * w, c // groups, groups)
    mean = grouped.mean((1, 2), keepdims=True)
    variance = grouped.var((1, 2), keepdims=True)
    return ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(n, h, w, c) * gamma + beta
