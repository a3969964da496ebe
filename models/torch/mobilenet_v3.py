"""MobileNet v3 (Howard et al., arXiv 1905.02244): [N, 3, S, S] images to [N, 1000] logits.

The layers of block i are one flat sequence, ``mb_block.i.seq``, so that a pipeline stage can start
at any of them.

Imported only where PyTorch is loaded already: a module class cannot be declared without it.
"""

from __future__ import annotations

from functools import partial
from typing import Dict, List, NamedTuple, Tuple

import torch
from torch import nn

from ipubench.models.torch.layers import SqueezeExcite, multiple_of_8

# As in the paper's TensorFlow code.
BATCH_NORM = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)
STEM_CHANNELS = 16
CLASSES = 1000


class Block(NamedTuple):
    """One row of table 1 or 2 of the paper."""

    kernel: int
    expanded: int
    outputs: int
    squeeze: bool  # squeeze and excite
    hard_swish: bool  # else ReLU
    stride: int


class Variant(NamedTuple):
    """A table of the paper, and the width of the layer before the classifier."""

    blocks: Tuple[Block, ...]
    features: int


VARIANTS: Dict[str, Variant] = {
    "large": Variant(
        (
            Block(3, 16, 16, False, False, 1),
            Block(3, 64, 24, False, False, 2),
            Block(3, 72, 24, False, False, 1),
            Block(5, 72, 40, True, False, 2),
            Block(5, 120, 40, True, False, 1),
            Block(5, 120, 40, True, False, 1),
            Block(3, 240, 80, False, True, 2),
            Block(3, 200, 80, False, True, 1),
            Block(3, 184, 80, False, True, 1),
            Block(3, 184, 80, False, True, 1),
            Block(3, 480, 112, True, True, 1),
            Block(3, 672, 112, True, True, 1),
            Block(5, 672, 160, True, True, 2),
            Block(5, 960, 160, True, True, 1),
            Block(5, 960, 160, True, True, 1),
        ),
        features=1280,
    ),
    "small": Variant(
        (
            Block(3, 16, 16, True, False, 2),
            Block(3, 72, 24, False, False, 2),
            Block(3, 88, 24, False, False, 1),
            Block(5, 96, 40, True, True, 2),
            Block(5, 240, 40, True, True, 1),
            Block(5, 240, 40, True, True, 1),
            Block(5, 120, 48, True, True, 1),
            Block(5, 144, 48, True, True, 1),
            Block(5, 288, 96, True, True, 2),
            Block(5, 576, 96, True, True, 1),
            Block(5, 576, 96, True, True, 1),
        ),
        features=1024,
    ),
}


class MobileNetV3(nn.Module):
    """The variant ``large`` or ``small``."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        blocks, features = VARIANTS[variant]
        self.stem = nn.Sequential(
            *_conv_norm(3, STEM_CHANNELS, 3, stride=2), nn.Hardswish(inplace=True)
        )
        channels = STEM_CHANNELS
        residuals: List[nn.Module] = []
        for block in blocks:
            residuals.append(InvertedResidual(channels, block))
            channels = block.outputs
        self.mb_block = nn.Sequential(*residuals)
        # Both variants end in a convolution six times as wide as the last block.
        width = 6 * channels
        self.head = nn.Sequential(*_conv_norm(channels, width, 1), nn.Hardswish(inplace=True))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(width, features),
            nn.Hardswish(inplace=True),
            nn.Dropout(0.2),
            nn.Linear(features, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        features = self.head(self.mb_block(self.stem(images)))
        logits: torch.Tensor = self.classifier(self.pool(features).flatten(1))
        return logits


class InvertedResidual(nn.Module):
    """1x1 expansion (left out where it changes nothing), depthwise convolution, 1x1 projection."""

    def __init__(self, inputs: int, block: Block) -> None:
        super().__init__()
        self.has_skip = block.stride == 1 and inputs == block.outputs
        activation = nn.Hardswish if block.hard_swish else nn.ReLU
        width = block.expanded
        layers: List[nn.Module] = []
        if width != inputs:
            layers += [*_conv_norm(inputs, width, 1), activation(inplace=True)]
        layers += _conv_norm(width, width, block.kernel, stride=block.stride, groups=width)
        layers.append(activation(inplace=True))
        if block.squeeze:
            squeezed = multiple_of_8(width // 4)
            layers.append(
                SqueezeExcite(width, squeezed, nn.ReLU(inplace=True), nn.Hardsigmoid(inplace=True))
            )
        layers += _conv_norm(width, block.outputs, 1)
        self.seq = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        outputs: torch.Tensor = self.seq(images)
        return outputs + images if self.has_skip else outputs


def _conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> List[nn.Module]:
    padding = kernel // 2
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        BATCH_NORM(outputs),
    ]
