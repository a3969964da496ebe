"""Transfers that overlap with computing, for PopTorch.

Imported only where PyTorch is loaded already: a module class cannot be declared without it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class OverlappedTransfers(nn.Module):
    """A network whose input arrives, and whose output leaves, while other batches compute.

    ``poptorch`` is the SDK's module; its options must reserve tiles for the transfers.
    """

    def __init__(self, network: nn.Module, poptorch: Any) -> None:
        super().__init__()
        self.network = network
        self._mode = poptorch.OverlapMode.OverlapDeviceIterationLoop
        self._overlap_input = poptorch.set_overlap_for_input
        self._overlap_output = poptorch.set_overlap_for_output

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the network makes of the images."""
        outputs: torch.Tensor = self.network(self._overlap_input(images, self._mode))
        overlapped: torch.Tensor = self._overlap_output(outputs, self._mode)
        return overlapped
