"""EfficientNet (Tan and Le, arXiv 1905.11946): [N, 3, S, S] images to [N, 1000] logits.

Its weights were trained in TensorFlow, so it has "SAME" padding and batch norms with epsilon 1e-3.
Layers have the names of timm's ``tf_efficientnet`` networks, whose state dictionaries fit.

Imported only if PyTorch is loaded already, because a module class needs it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import List, NamedTuple

import torch
from torch import nn

from ipubench.models.published import EFFICIENTNETS, HEAD_CHANNELS, STAGES, STEM_CHANNELS
from ipubench.models.torch.layers import SqueezeExcite, multiple_of_8

BATCH_NORM = partial(nn.BatchNorm2d, eps=1e-3)
CLASSES = 1000


class EfficientNet(nn.Module):
    """One variant for images of one size.

    ``expand_ratio`` is the expansion of a block, except in the first stage. ``group_dim`` is the
    channels per group of convolutions that are depthwise with 1. PyTorch raises ValueError if the
    groups do not divide the channels of a layer.
    """

    def __init__(
        self, variant: str, image_size: int, expand_ratio: int = 6, group_dim: int = 1
    ) -> None:
        super().__init__()
        scale = EFFICIENTNETS[variant.upper()]
        channels = multiple_of_8(STEM_CHANNELS * scale.width)
        # The padding depends on the size; fixing it now keeps the network static.
        self.pad = same_padding(image_size, 3, 2)
        self.conv_stem = _same_conv(image_size, 3, channels, 3, 2)
        self.bn1 = BATCH_NORM(channels)
        self.act1 = nn.SiLU(inplace=True)
        size = math.ceil(image_size / 2)
        stages: List[nn.Module] = []
        for stage in STAGES:
            width = multiple_of_8(stage.channels * scale.width)
            blocks: List[nn.Module] = []
            for block in range(math.ceil(stage.blocks * scale.depth)):
                stride = stage.stride if block == 0 else 1
                shape = BlockShape(size, channels, width, stage.kernel, stride, group_dim)
                if stage.expands:
                    blocks.append(InvertedResidual(shape, expand_ratio))
                else:
                    blocks.append(SeparableBlock(shape))
                channels = width
                size = math.ceil(size / stride)
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        features = multiple_of_8(HEAD_CHANNELS * scale.width)
        self.conv_head = nn.Conv2d(channels, features, 1, bias=False)
        self.bn2 = BATCH_NORM(features)
        self.act2 = nn.SiLU(inplace=True)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(scale.dropout)
        self.classifier = nn.Linear(features, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        features = self.act1(self.bn1(self.conv_stem(self.pad(images))))
        features = self.blocks(features)
        features = self.act2(self.bn2(self.conv_head(features)))
        features = self.dropout(self.global_pool(features).flatten(1))
        logits: torch.Tensor = self.classifier(features)
        return logits


class BlockShape(NamedTuple):
    """A block's shape: ``inputs`` channels of size x size to ``outputs`` channels."""

    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int
    group_dim: int

    @property
    def has_skip(self) -> bool:
        """Whether the input is added to the output."""
        return self.stride == 1 and self.inputs == self.outputs


class SeparableBlock(nn.Module):
    """A block without expansion: depthwise convolution, squeeze and excite, 1x1 convolution."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        channels = shape.inputs
        self.has_skip = shape.has_skip
        self.pad = same_padding(shape.size, shape.kernel, shape.stride)
        self.conv_dw = _depthwise(shape, channels)
        self.bn1 = BATCH_NORM(channels)
        self.act1 = nn.SiLU(inplace=True)
        self.se = _squeeze_excite(channels, channels)
        self.conv_pw = nn.Conv2d(channels, shape.outputs, 1, bias=False)
        self.bn2 = BATCH_NORM(shape.outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        features = self.act1(self.bn1(self.conv_dw(self.pad(images))))
        outputs: torch.Tensor = self.bn2(self.conv_pw(self.se(features)))
        return outputs + images if self.has_skip else outputs


class InvertedResidual(nn.Module):
    """1x1 expansion, depthwise convolution, squeeze and excite, 1x1 projection."""

    def __init__(self, shape: BlockShape, expand_ratio: int) -> None:
        super().__init__()
        channels = shape.inputs * expand_ratio
        self.has_skip = shape.has_skip
        self.conv_pw = nn.Conv2d(shape.inputs, channels, 1, bias=False)
        self.bn1 = BATCH_NORM(channels)
        self.act1 = nn.SiLU(inplace=True)
        self.pad = same_padding(shape.size, shape.kernel, shape.stride)
        self.conv_dw = _depthwise(shape, channels)
        self.bn2 = BATCH_NORM(channels)
        self.act2 = nn.SiLU(inplace=True)
        self.se = _squeeze_excite(channels, shape.inputs)
        self.conv_pwl = nn.Conv2d(channels, shape.outputs, 1, bias=False)
        self.bn3 = BATCH_NORM(shape.outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        features = self.act1(self.bn1(self.conv_pw(images)))
        features = self.act2(self.bn2(self.conv_dw(self.pad(features))))
        outputs: torch.Tensor = self.bn3(self.conv_pwl(self.se(features)))
        return outputs + images if self.has_skip else outputs


def same_padding(size: int, kernel: int, stride: int) -> nn.Module:
    """Return the part of TensorFlow's "SAME" padding that a convolution does not support.

    "SAME" makes ceil(size / stride) outputs. Of an odd number of zeros, the extra one is at the
    end. An even number is left to the convolution's ``padding``.
    """
    zeros = _same_zeros(size, kernel, stride)
    if zeros % 2 == 0:
        return nn.Identity()
    before, after = zeros // 2, zeros - zeros // 2
    return nn.ZeroPad2d((before, after, before, after))


def _same_zeros(size: int, kernel: int, stride: int) -> int:
    outputs = math.ceil(size / stride)
    return max((outputs - 1) * stride + kernel - size, 0)


def _same_conv(
    size: int, inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1
) -> nn.Conv2d:
    zeros = _same_zeros(size, kernel, stride)
    padding = zeros // 2 if zeros % 2 == 0 else 0
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)


def _depthwise(shape: BlockShape, channels: int) -> nn.Conv2d:
    groups = max(channels // shape.group_dim, 1)
    return _same_conv(shape.size, channels, channels, shape.kernel, shape.stride, groups)


def _squeeze_excite(channels: int, block_inputs: int) -> SqueezeExcite:
    """Return the layer; as in the original, with a quarter of the block's unexpanded inputs."""
    return SqueezeExcite(channels, block_inputs // 4, nn.SiLU(inplace=True), nn.Sigmoid())
