"""Networks that were rewritten before they are compiled: the same results, in fewer operations."""

from __future__ import annotations

from typing import Any, Tuple

import pytest

pytestmark = pytest.mark.framework

torch = pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


def rewritten(*layers: Any, size: Tuple[int, int] = (9, 12)) -> Any:
    """Return the layers as a graph, rewritten; the results are the same as before."""
    from ipubench.fixtures.runtimes.torch.rewrites import rewrite

    torch.manual_seed(0)
    images = torch.randn(2, 4, *size)
    network = torch.fx.symbolic_trace(torch.nn.Sequential(*layers).eval())
    with torch.inference_mode():
        wanted = network(images)
        rewrite(network, images)
        found = network(images)
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, atol=1e-5)
    return network


def kinds(network: Any) -> Any:
    layers = dict(network.named_modules())
    return [
        type(layers[node.target]).__name__
        for node in network.graph.nodes
        if node.op == "call_module"
    ]


@pytest.mark.parametrize("padding", [(0, 1, 0, 1), (1, 2, 1, 2), (0, 1, 1, 1), (2, 2, 0, 3)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("groups", [1, 4])
def test_a_convolution_pads_by_itself(padding: Any, stride: int, groups: int) -> None:
    conv = torch.nn.Conv2d(4, 8, 3, stride, groups=groups)
    network = rewritten(torch.nn.ZeroPad2d(padding), conv, torch.nn.SiLU())
    assert kinds(network) == ["Conv2d", "SiLU"]


def test_padding_that_no_longer_kernel_gives_stays() -> None:
    pad, conv = torch.nn.ZeroPad2d, torch.nn.Conv2d
    assert kinds(rewritten(pad((1, 0, 0, 0)), conv(4, 4, 3))) == ["ZeroPad2d", "Conv2d"]
    assert kinds(rewritten(pad((0, 1, 0, 1)), conv(4, 4, 3, padding=1))) == ["ZeroPad2d", "Conv2d"]
    assert kinds(rewritten(pad((0, 1, 0, 1)), conv(4, 4, 3, dilation=2))) == ["ZeroPad2d", "Conv2d"]
    assert kinds(rewritten(pad((0, 1, 0, 1)), torch.nn.ReLU())) == ["ZeroPad2d", "ReLU"]
    twice = conv(4, 4, 3)
    shared = ["ZeroPad2d", "Conv2d", "Conv2d"]
    assert kinds(rewritten(pad((0, 1, 0, 1)), twice, twice)) == shared


def test_an_average_of_whole_images_knows_their_size() -> None:
    pool = torch.nn.AdaptiveAvgPool2d
    assert kinds(rewritten(pool(1), torch.nn.Flatten())) == ["AvgPool2d", "Flatten"]
    assert kinds(rewritten(pool((1, 1)), torch.nn.Flatten())) == ["AvgPool2d", "Flatten"]
    assert kinds(rewritten(pool(3), torch.nn.Flatten())) == ["AdaptiveAvgPool2d", "Flatten"]
    once = pool(1)
    assert kinds(rewritten(once, once)) == ["AdaptiveAvgPool2d", "AdaptiveAvgPool2d"]


def test_efficientnet_pads_and_averages_nowhere_else() -> None:
    from ipubench.fixtures.runtimes.torch.engines import prepare
    from ipubench.fixtures.runtimes.torch.rewrites import rewrite
    from ipubench.models.torch.classification import build_classifier

    module = build_classifier("efficientnet-b0", random_weights=True)
    network = prepare(module, torch.float32, torch.uint8, normalise=True)
    images = torch.zeros((1, 3, 224, 224), dtype=torch.uint8)
    with torch.inference_mode():
        rewrite(network, images)
    assert not {"ZeroPad2d", "AdaptiveAvgPool2d"} & set(kinds(network.network))
