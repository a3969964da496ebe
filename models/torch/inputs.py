"""Wrappers of a network's input: a cast, normalisation, overlapped transfers.

Imported only if PyTorch is loaded already, because a module class needs it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ipubench.models.published import DEVIATION, MEAN


class CastInput(nn.Module):
    """A network that takes images of any type and first casts them to ``dtype``.

    Casting the whole module to another type changes this type too.
    """

    like: torch.Tensor

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("like", torch.empty(0, dtype=dtype))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the network's outputs."""
        outputs: torch.Tensor = self.network(images.to(self.like.dtype))
        return outputs


class NormalisedInput(nn.Module):
    """A network that takes raw images [N, 3, S, S], values 0 to 255 of any dtype.

    The images are cast to ``dtype``, then normalised to ImageNet's mean and deviation.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.dtype = dtype
        deviation = torch.tensor(DEVIATION, dtype=torch.float32).view(-1, 1, 1)
        average = torch.tensor(MEAN, dtype=torch.float32).view(-1, 1, 1)
        self.register_buffer("scale", (1.0 / (255.0 * deviation)).to(dtype))
        self.register_buffer("shift", (average / deviation).to(dtype))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the network makes of the normalised images."""
        outputs: torch.Tensor = self.network(images.to(self.dtype) * self.scale - self.shift)
        return outputs


class OverlappedTransfers(nn.Module):
    """A network whose input and output are transferred while other batches compute.

    ``poptorch`` is the SDK's module; its options must reserve tiles for the transfers. ``mode`` is
    one of its ``OverlapMode``.
    """

    def __init__(self, network: nn.Module, poptorch: Any, mode: Any) -> None:
        super().__init__()
        self.network = network
        self._mode = mode
        self._overlap_input = poptorch.set_overlap_for_input
        self._overlap_output = poptorch.set_overlap_for_output

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the network makes of the images."""
        outputs: torch.Tensor = self.network(self._overlap_input(images, self._mode))
        overlapped: torch.Tensor = self._overlap_output(outputs, self._mode)
        return overlapped
