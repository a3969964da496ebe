"""The options of an image classifier in TensorFlow, for training and inference.

The names are those of the original program's command line. Zeros and empty texts select the model's
own value if the help says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

from ipubench.bench_training.requirements import check_needs
from ipubench.fixtures.case.options import IPUS_OF_SYSTEM, CaseConfig, option
from ipubench.fixtures.runtimes.tensorflow.cnn_options import ClassifierOptions
from ipubench.models.tensorflow.cnn.blocks import cut_at
from ipubench.models.tensorflow.cnn.classification import Network, build_classifier

# The proportions of memory of one pipeline stage: for convolutions and for matrix products.
PROPORTIONS_PER_SHARD = 2
MAX_SEED = 2**31 - 1  # TensorFlow's seeds are int32


@dataclass(frozen=True)
class NetworkOptions(CaseConfig):
    """The network and its batch size."""

    model: str = option("resnet", "architecture", choices=("resnet", "resnext", "efficientnet"))
    model_size: str = option("50", "its size: 50, 101, B0, B4, ...")
    image_size: int = option(0, "height and width of images in pixels; 0: as the model", minimum=0)
    micro_batch_size: int = option(1, "images per device step and replica", minimum=1)
    batch_norm: bool = option(False, "batch norms instead of group norms")
    groups: int = option(0, "groups of a group norm; 0: 32, EfficientNet 4", minimum=0)
    norm_epsilon: float = option(0.0, "added to a norm's variance; 0: as the model", minimum=0.0)
    convolution_groups: int = option(32, "groups of ResNeXt's 3x3 convolutions", minimum=1)
    group_dim: int = option(
        0, "channels of a group: ResNeXt 4, EfficientNet's depthwise ones 1; 0: these", minimum=0
    )
    expand_ratio: int = option(6, "expansion of EfficientNet's blocks", minimum=1)
    no_se: bool = option(False, "EfficientNet without squeeze and excitation")
    depth_divisor: int = option(8, "EfficientNet: channels are multiples of it", minimum=1)
    top_width: int = option(
        1280, "EfficientNet: channels before the logits; 0: no convolution for them", minimum=0
    )
    use_relu: bool = option(False, "EfficientNet with ReLU instead of swish")
    width_coefficient: float = option(0.0, "EfficientNet's width; 0: as the size", minimum=0.0)
    depth_coefficient: float = option(0.0, "EfficientNet's depth; 0: as the size", minimum=0.0)


@dataclass(frozen=True)
class Classifier(ClassifierOptions, NetworkOptions):
    """One network at one batch size, and how images reach it."""

    @property
    def ipus(self) -> int:
        """IPUs of all replicas; 0 on a host."""
        return IPUS_OF_SYSTEM[self.system] and self.shards * self.replicas

    @property
    def pixels(self) -> int:
        """Height and width of the images that the network receives."""
        return self.image_size or self.network.image_size

    @property
    def network(self) -> Network:
        """The network of the options. Raises ValueError for an unknown one."""
        efficientnet = self.model == "efficientnet"
        return Network(
            model=self.model,
            model_size=self.model_size,
            norm="batch" if self.batch_norm else "group",
            groups=self.groups or (4 if efficientnet else 32),
            norm_epsilon=self.norm_epsilon or None,
            convolution_groups=self.convolution_groups,
            group_dim=self.group_dim or (4 if self.model == "resnext" else 1),
            expand_ratio=self.expand_ratio,
            squeeze_excite=not self.no_se,
            depth_divisor=self.depth_divisor,
            top_width=self.top_width,
            use_relu=self.use_relu,
            width_coefficient=self.width_coefficient or None,
            depth_coefficient=self.depth_coefficient or None,
        )

    def classifier(self) -> Callable[..., Any]:
        """Return a function that builds the network: (tf, dtype=, group_norm=) -> Classifier."""
        return partial(build_classifier, network=self.network, seed=self.seed)

    def check(self) -> None:
        """Raise ValueError for contradictory options, and for what the original would ignore."""
        super().check()
        cut_at(self.network.unit_names, self.pipeline_splits)
        check_needs(self)
        if self.seed > MAX_SEED:
            raise ValueError(f"seed={self.seed} is above the largest, {MAX_SEED}")
        if self.eight_bit_io and self.hostside_norm:
            raise ValueError("eight_bit_io sends integers, which hostside_norm cannot normalise")
        if self.system == "host":
            return
        if self.replicas % self.instances:
            raise ValueError(
                f"replicas={self.replicas} do not divide into instances={self.instances}"
            )
        if self.system != "ipu" and self.ipus != IPUS_OF_SYSTEM[self.system]:
            raise ValueError(
                f"shards={self.shards} x replicas={self.replicas} are {self.ipus} IPUs, "
                f"{self.system} has {IPUS_OF_SYSTEM[self.system]}"
            )
        self._check_pipeline()

    def _check_pipeline(self) -> None:
        if self.pipeline != (self.shards > 1):
            raise ValueError(f"pipeline={self.pipeline} with shards={self.shards}: one needs both")
        if len(self.pipeline_splits) != self.shards - 1:
            raise ValueError(
                f"pipeline_splits has {len(self.pipeline_splits)} names, {self.shards} shards "
                f"need {self.shards - 1}"
            )
        proportions = len(self.available_memory_proportion)
        if self.shards == 1 and proportions > 1:
            raise ValueError(
                f"available_memory_proportion has {proportions} values, and a network on one IPU "
                "takes one"
            )
        if proportions not in (0, 1, PROPORTIONS_PER_SHARD * self.shards):
            raise ValueError(
                f"available_memory_proportion has {proportions} values: give one, or for each of "
                f"the {self.shards} shards one for convolutions and one for matrix products"
            )
        if any(not 0 < value <= 1 for value in self.available_memory_proportion):
            raise ValueError("available_memory_proportion: values lie above 0 and up to 1")
