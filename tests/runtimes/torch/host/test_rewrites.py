"""Networks that are rewritten before compiling: the same results with fewer operations."""

from __future__ import annotations

from typing import Any, Callable, List

import pytest

pytestmark = pytest.mark.framework

torch = pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
nn = torch.nn
PAD, CONV, POOL = nn.ZeroPad2d, nn.Conv2d, nn.AdaptiveAvgPool2d


def kinds(network: Any) -> List[str]:
    layers = dict(network.named_modules())
    nodes = [node for node in network.graph.nodes if node.op == "call_module"]
    return [type(layers[node.target]).__name__ for node in nodes]


def twice(layer: Any) -> List[Any]:
    return [layer, layer]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        *(
            (lambda p=p, s=s, g=g: [PAD(p), CONV(4, 8, 3, s, groups=g), nn.SiLU()], "Conv2d SiLU")
            for p, s, g in [
                ((0, 1, 0, 1), 1, 1),
                ((1, 2, 1, 2), 2, 4),
                ((0, 1, 1, 1), 2, 1),
                ((2, 2, 0, 3), 1, 4),
            ]
        ),
        # Padding stays if no longer kernel can replace it.
        (lambda: [PAD((1, 0, 0, 0)), CONV(4, 4, 3)], "ZeroPad2d Conv2d"),
        (lambda: [PAD((0, 1, 0, 1)), CONV(4, 4, 3, padding=1)], "ZeroPad2d Conv2d"),
        (lambda: [PAD((0, 1, 0, 1)), CONV(4, 4, 3, dilation=2)], "ZeroPad2d Conv2d"),
        (lambda: [PAD((0, 1, 0, 1)), nn.ReLU()], "ZeroPad2d ReLU"),
        (lambda: [PAD((0, 1, 0, 1)), *twice(CONV(4, 4, 3))], "ZeroPad2d Conv2d Conv2d"),
        # An average over whole images of one size.
        (lambda: [POOL(1), nn.Flatten()], "AvgPool2d Flatten"),
        (lambda: [POOL((1, 1)), nn.Flatten()], "AvgPool2d Flatten"),
        (lambda: [POOL(3), nn.Flatten()], "AdaptiveAvgPool2d Flatten"),
        (lambda: twice(POOL(1)), "AdaptiveAvgPool2d AdaptiveAvgPool2d"),
    ],
)
def test_the_results_are_the_same_in_these_layers(
    layers: Callable[[], List[Any]], expected: str
) -> None:
    from ipubench.fixtures.runtimes.torch.host.rewrites import rewrite

    torch.manual_seed(0)
    images = torch.randn(2, 4, 9, 12)
    network = torch.fx.symbolic_trace(nn.Sequential(*layers()).eval())
    with torch.inference_mode():
        wanted = network(images)
        rewrite(network, images)
        torch.testing.assert_close(network(images), wanted, atol=1e-5, rtol=0)
    assert kinds(network) == expected.split()


def test_efficientnet_pads_and_averages_only_there() -> None:
    from ipubench.fixtures.runtimes.torch.host.engines import prepare
    from ipubench.fixtures.runtimes.torch.host.rewrites import rewrite
    from ipubench.models.torch.classification import build_classifier

    module = build_classifier("efficientnet-b0", random_weights=True)
    network = prepare(module, torch.float32, torch.uint8, normalise=True)
    with torch.inference_mode():
        rewrite(network, torch.zeros((1, 3, 224, 224), dtype=torch.uint8))
    assert not {"ZeroPad2d", "AdaptiveAvgPool2d"} & set(kinds(network.network))
