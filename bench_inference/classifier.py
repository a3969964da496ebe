"""The options of every image classification case in PyTorch, and the network they stand for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Callable, Tuple

from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.models.torch.architectures import ARCHITECTURES, Norm
from ipubench.models.torch.classification import build_classifier

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Classifier(CaseConfig):
    """One network at one batch size."""

    model: str = option("resnet18", "network", choices=tuple(ARCHITECTURES))
    micro_batch_size: int = option(1, "images per device step and replica", minimum=1)
    batches_per_step: int = option(1, "device steps per host call", minimum=1)
    steps: int = option(100, "timed host calls; a stop rule decides unless given", minimum=1)
    data: str = option("real", "synthetic, generated or real images")
    engine: str = option(
        "auto",
        "how a host runs the network; auto takes the fastest measured for the device",
        choices=("auto", "onednn", "compile", "eager", "openvino"),
    )
    random_weights: bool = option(False, "seeded random weights instead of pretrained ones")
    weights: str = option("", "path of a state dictionary to load")
    norm_type: str = option("batch", "normalisation layer", choices=("batch", "group", "none"))
    norm_num_groups: int = option(32, "groups of the group normalisation", minimum=1)
    norm_eps: float = option(1e-5, "epsilon of a group normalisation", minimum=0)
    enable_fast_groupnorm: bool = option(
        False, "every n-th channel in a group: faster on an IPU, other weights than the usual"
    )
    batchnorm_momentum: float = option(0.1, "momentum of batch norms; inference ignores it")
    efficientnet_expand_ratio: int = option(6, "expansion of EfficientNet's blocks", minimum=1)
    efficientnet_group_dim: int = option(
        1, "channels per group of EfficientNet's depthwise convolutions", minimum=1
    )
    input_image_padding: bool = option(False, "a fourth, zero channel for the first convolution")
    eight_bit_io: bool = option(False, "images travel as uint8 and are normalised on the device")
    normalization_location: str = option(
        "host", "where images are normalised", choices=("host", "device", "ipu", "none")
    )
    dataloader_worker: int = option(0, "loader processes; 0 = one per core, at most 32", minimum=0)
    dataloader_rebatch_size: int = option(
        0, "images that a loader process prepares at a time; 0 = by the batch size", minimum=0
    )
    half_partial: bool = option(False, "accumulate partial results in float16", ipu_only=True)
    pipeline_splits: Tuple[str, ...] = option(
        (), "layers that start the next stage, as in layer1/0/conv1", ipu_only=True
    )
    exchange_memory_target: str = option(
        "cycles",
        "what the exchange between tiles is optimised for",
        choices=("cycles", "balanced", "memory"),
        ipu_only=True,
    )
    exchange_prefetch: bool = option(
        True, "fetch the next input while computing; off for minimum latency", ipu_only=True
    )
    num_io_tiles: int = option(
        0, "tiles that transfer while the others compute; 0, or even and 32 to 192", ipu_only=True
    )
    instances: int = option(
        1, "processes that run together: they share an IPU case's replicas", minimum=1
    )
    model_cache_path: str = option("", "folder that keeps compiled models for later runs")
    compile_only: bool = option(False, "compile, and neither run nor measure")
    offline_target_ipu_version: int = option(
        2, "IPU version that compile_only compiles for where no IPU is attached", ipu_only=True
    )

    @property
    def image_size(self) -> int:
        """Height and width of the network's input in pixels."""
        return ARCHITECTURES[self.model].image_size

    def check(self) -> None:
        """Refuse what no device can run, or what would silently have no effect."""
        super().check()
        tiles = self.num_io_tiles
        if tiles and (not 32 <= tiles <= 192 or tiles % 2):
            raise ValueError(f"num_io_tiles={tiles}: give 0, or an even number from 32 to 192")
        if self.enable_fast_groupnorm and self.norm_type != "group":
            raise ValueError("enable_fast_groupnorm needs norm_type=group")
        if self.system != "host" and self.replicas % self.instances:
            raise ValueError(
                f"replicas={self.replicas} cannot be shared equally by instances={self.instances}"
            )
        efficientnet = self.model.startswith("efficientnet")
        modified = (self.efficientnet_expand_ratio, self.efficientnet_group_dim) != (6, 1)
        if modified and not efficientnet:
            raise ValueError(
                "efficientnet_expand_ratio and efficientnet_group_dim need an EfficientNet, not "
                f"{self.model}"
            )

    def network(self) -> Callable[[], nn.Module]:
        """Return what builds the network: float32, in evaluation mode."""
        return partial(
            build_classifier,
            self.model,
            random_weights=self.random_weights,
            weights=os.path.expanduser(self.weights),
            norm=Norm(
                self.norm_type,
                self.norm_num_groups,
                self.norm_eps,
                # PopART regroups the channels of an ordinary layer by an option of its own.
                self.enable_fast_groupnorm and self.system == "host",
                self.batchnorm_momentum,
            ),
            expand_ratio=self.efficientnet_expand_ratio,
            group_dim=self.efficientnet_group_dim,
            input_padding=self.input_image_padding,
        )
