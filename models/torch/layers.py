"""Layers and initial weights that several networks share.

Imported only if PyTorch is loaded already, because a module class needs it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class SqueezeExcite(nn.Module):
    """Scales each channel by a factor that two 1x1 convolutions compute from the channels' means.

    images [N, C, H, W] -> [N, C, H, W]; ``squeezed`` is the number of channels between the two.
    """

    def __init__(
        self, channels: int, squeezed: int, activation: nn.Module, gate: nn.Module
    ) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.conv_reduce = nn.Conv2d(channels, squeezed, 1)
        self.act1 = activation
        self.conv_expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = gate

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scaled images."""
        squeezed = self.act1(self.conv_reduce(self.pool(images)))
        scale: torch.Tensor = self.gate(self.conv_expand(squeezed))
        return images * scale


class PaddedConv2d(nn.Module):
    """A convolution of 3 channels computed on 4; the fourth channel and its weights are zero.

    It widens ``conv`` in place. Results for images [N, 3, H, W] do not change.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        conv.weight = nn.Parameter(functional.pad(conv.weight.detach(), (0, 0, 0, 0, 0, 1)))
        conv.in_channels += 1
        self.conv = conv

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the convolution of the images and a zero channel."""
        outputs: torch.Tensor = self.conv(functional.pad(images, (0, 0, 0, 0, 0, 1)))
        return outputs


def pad_input(network: nn.Module) -> None:
    """Give the first convolution of ``network`` a fourth, zero channel; images keep three.

    The convolution itself moves from ``PATH`` to ``PATH.conv``; all other layers keep their paths.
    """
    path, conv = next(
        (path, layer) for path, layer in network.named_modules() if isinstance(layer, nn.Conv2d)
    )
    replace_layer(network, path, PaddedConv2d(conv))


class HardswishProduct(nn.Module):
    """nn.Hardswish as a product. PopTorch makes seven operations of the layer, and two of this."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the activation of the images."""
        return images * functional.hardsigmoid(images)


def expand_hardswish(network: nn.Module) -> None:
    """Replace each nn.Hardswish of ``network``, in place."""
    for path, layer in list(network.named_modules()):
        if isinstance(layer, nn.Hardswish):
            replace_layer(network, path, HardswishProduct())


def replace_layer(network: nn.Module, path: str, layer: nn.Module) -> None:
    """Replace the layer at ``path``, written with dots."""
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, layer)


def multiple_of_8(channels: float) -> int:
    """Return the nearest multiple of 8 that is at most 10% smaller than ``channels``."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def initialise(network: nn.Module, gain: float) -> None:
    """Draw convolutions from N(0, gain / fan-in), other layers as PyTorch does; zero all biases.

    Gain 2 keeps the scale of activations through a convolution and a ReLU (He et al., arXiv
    1502.01852). The publications use the fan-out. Without training, when no batch norm rescales,
    that makes some networks exceed float16, and others return the same logits for all images.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=(gain / layer.weight[0].numel()) ** 0.5)
        elif isinstance(layer, (nn.Linear, nn.BatchNorm2d)):
            layer.reset_parameters()
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
