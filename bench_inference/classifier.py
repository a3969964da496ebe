"""The base of all image classification cases in PyTorch: rules, network and images."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import FrozenSet, TypeVar

from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.runtimes.torch.inference_options import InferenceOptions
from ipubench.models.torch.architectures import Norm
from ipubench.models.torch.classification import Described

Config = TypeVar("Config", bound="Classifier")


@dataclass(frozen=True)
class Classifier(InferenceOptions):
    """One network at one batch size."""

    def settled(self: Config, given: FrozenSet[str]) -> Config:
        """Return random weights for images that are random too, unless others are asked for."""
        if self.data == "real" or self.weights or "random_weights" in given:
            return self
        return dataclasses.replace(self, random_weights=True)

    def check(self) -> None:
        """Raise ValueError for invalid options, and for options that would have no effect."""
        super().check()
        tiles = self.num_io_tiles
        if tiles and (not 32 <= tiles <= 192 or tiles % 2):
            raise ValueError(f"num_io_tiles={tiles}: give 0, or an even number from 32 to 192")
        if tiles and self.data == "synthetic" and self.system != "host":
            # PopART makes their streams, and leaves these unconnected (graphcore/popart,
            # irlowering.cpp, devicex.cpp).
            raise ValueError(
                "num_io_tiles overlaps transfers, and synthetic data has none; give "
                "--data=generated, or num_io_tiles=0"
            )
        if self.enable_fast_groupnorm and self.norm_type != "group":
            raise ValueError("enable_fast_groupnorm needs norm_type=group")
        if self.system != "host" and self.replicas % self.instances:
            raise ValueError(
                f"replicas={self.replicas} cannot be shared equally by instances={self.instances}"
            )
        if self.compile_only and self.system != "host" and self.instances > 1:
            # PopTorch compiles without an IPU only if no IPU number is given, but PopDist gives
            # each instance one (graphcore/poptorch, CompilerImpl.cpp).
            raise ValueError(
                f"compile_only with instances={self.instances}: the instances' programs are for "
                "the IPUs that PopDist chooses; leave it out to compile and measure them"
            )
        efficientnet = self.model.startswith("efficientnet")
        modified = (self.efficientnet_expand_ratio, self.efficientnet_group_dim) != (6, 1)
        if modified and not efficientnet:
            raise ValueError(
                "efficientnet_expand_ratio and efficientnet_group_dim need an EfficientNet, not "
                f"{self.model}"
            )

    def network(self) -> Described:
        """Return the network, which a call builds: float32, in evaluation mode."""
        return Described(
            self.model,
            random_weights=self.random_weights,
            weights=os.path.expanduser(self.weights),
            norm=Norm(
                self.norm_type,
                self.norm_num_groups,
                self.norm_eps,
                # PopART has an option that regroups the channels of an ordinary layer.
                self.enable_fast_groupnorm and self.system == "host",
                self.batchnorm_momentum,
            ),
            expand_ratio=self.efficientnet_expand_ratio,
            group_dim=self.efficientnet_group_dim,
            input_padding=self.input_image_padding,
        )

    def feed(self, data: Data) -> ImageFeed:
        """Return the case's images."""
        return data.images(self, self.micro_batch_size, self.image_size)
