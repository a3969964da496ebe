"""MobileNet v3 (Howard et al., arXiv 1905.02244), made of torchvision's layers.

The layers of block i are one flat sequence, ``mb_block.i.seq``, so that a pipeline stage can start
at any of them.

Imported only if PyTorch is loaded already, because a module class needs it.
"""

from __future__ import annotations

from typing import Any, List

import torch
from torch import nn


class MobileNetV3(nn.Module):
    """[N, 3, S, S] images to [N, 1000] logits, with the layers of torchvision's network."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        stem, *blocks, head = network.features
        self.stem = stem
        self.mb_block = nn.Sequential(*map(InvertedResidual, blocks))
        self.head = head
        self.pool = network.avgpool
        self.classifier = network.classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        features = self.head(self.mb_block(self.stem(images)))
        logits: torch.Tensor = self.classifier(self.pool(features).flatten(1))
        return logits


class InvertedResidual(nn.Module):
    """1x1 expansion (unless it changes nothing), depthwise convolution, 1x1 projection."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.has_skip = block.use_res_connect
        layers: List[nn.Module] = []
        for part in block.block:
            layers.extend(part if isinstance(part, nn.Sequential) else [part])
        self.seq = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        outputs: torch.Tensor = self.seq(images)
        return outputs + images if self.has_skip else outputs
