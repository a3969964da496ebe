"""The convolutional networks for image classification, and how to build one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from ipubench.models.published import EFFICIENTNETS, HEAD_CHANNELS
from ipubench.models.tensorflow.cnn.blocks import (
    MAX_DEPTH,
    Shape,
    cut_at,
    efficientnet_blocks,
    resnet_blocks,
)

if TYPE_CHECKING:
    from ipubench.models.tensorflow.cnn.layers import Classifier, GroupNormFunction, Unit


__all__ = ["MODELS", "Network", "build_classifier", "split_units"]


#: Model -> its sizes.
MODELS: Dict[str, Sequence[str]] = {
    "resnet": ("10", "14", "18", "26", "34", "50", "101", "152"),
    "resnext": ("14", "26", "50", "101", "152"),
    "efficientnet": tuple(EFFICIENTNETS),
}
# For each model: the norm's epsilon, and the gain of random kernels. Gain 2 keeps the scale of
# activations through a convolution and a ReLU (He et al., arXiv 1502.01852), but a ResNet adds up
# too many branches for it.
_EPSILON = {"resnet": 1e-5, "resnext": 1e-5, "efficientnet": 1e-3}
_GAIN = {"resnet": 1.0, "resnext": 1.0, "efficientnet": 2.0}
_GROUP_DIM = {"resnext": 4, "efficientnet": 1}
# More channels would not fit into any memory.
_MAX_WIDTH = 100.0


@dataclass(frozen=True)
class Network:
    """One network. None means the model's own value.

    Raises ValueError for invalid values that the options of a case accept.
    """

    model: str = "resnet"  # resnet, resnext or efficientnet
    model_size: str = "50"  # a ResNet's layers; an EfficientNet's "B4" or "4"
    classes: int = 1000
    norm: str = "batch"  # batch or group
    groups: int = 32  # of a group norm
    bn_decay: float = 0.97  # of a batch norm's moving averages
    norm_epsilon: Optional[float] = None
    convolution_groups: int = 32  # resnext only
    group_dim: Optional[int] = None  # channels per group; resnext 4, efficientnet 1
    # The others are for efficientnet only.
    expand_ratio: int = 6
    dropout_rate: Optional[float] = None
    block_survival_prob: float = 0.8
    squeeze_excite: bool = True
    depth_divisor: int = 8
    top_width: int = HEAD_CHANNELS  # 0: no convolution before the classifier
    use_relu: bool = False
    width_coefficient: Optional[float] = None
    depth_coefficient: Optional[float] = None

    def __post_init__(self) -> None:
        sizes = MODELS[self.model]
        if self.size not in sizes:
            raise ValueError(f"model_size of {self.model}={self.size}: choose {', '.join(sizes)}")
        if not 0.0 < self.bn_decay < 1.0:
            raise ValueError(f"bn_decay={self.bn_decay}: choose a number between 0 and 1")
        if self.dropout_rate is not None and not 0.0 <= self.dropout_rate < 1.0:
            raise ValueError(f"dropout_rate={self.dropout_rate}: choose 0 or more, and below 1")
        if not 0.0 < self.block_survival_prob <= 1.0:
            raise ValueError(
                f"block_survival_prob={self.block_survival_prob}: choose above 0, at most 1"
            )
        for name, most in (("width_coefficient", _MAX_WIDTH), ("depth_coefficient", MAX_DEPTH)):
            value = getattr(self, name)
            if value is not None and not 0.0 < value <= most:
                raise ValueError(f"{name}={value}: choose a number above 0, at most {most:g}")

    @property
    def size(self) -> str:
        """``model_size`` as in MODELS."""
        if self.model != "efficientnet":
            return self.model_size
        word = self.model_size.upper()
        return word if word.startswith("B") else f"B{word}"

    @property
    def image_size(self) -> int:
        """Height and width of the images the network was made for."""
        return EFFICIENTNETS[self.size].image_size if self.model == "efficientnet" else 224

    @property
    def shape(self) -> Shape:
        """The properties of this EfficientNet."""
        scale = EFFICIENTNETS[self.size]
        return Shape(
            width=_default(self.width_coefficient, scale.width),
            depth=_default(self.depth_coefficient, scale.depth),
            dropout=_default(self.dropout_rate, scale.dropout),
            expand_ratio=self.expand_ratio,
            group_dim=_default(self.group_dim, _GROUP_DIM[self.model]),
            squeeze_excite=self.squeeze_excite,
            survival=self.block_survival_prob,
            depth_divisor=self.depth_divisor,
            top_width=self.top_width,
            activation="relu" if self.use_relu else "swish",
        )

    @property
    def unit_names(self) -> List[str]:
        """The names of the units in order; pipelines can be split at all but the first."""
        if self.model == "efficientnet":
            names = [name for block in efficientnet_blocks(self.shape) for name in block.units]
        else:
            names = [name for block in resnet_blocks(self.size) for name in block.units]
        return ["stem", *names, "top"]


def build_classifier(
    tf: Any,
    network: Network,
    dtype: Any = None,
    seed: int = 0,
    group_norm: Optional[GroupNormFunction] = None,
) -> Classifier:
    """Return a network with seeded random weights, variables of ``dtype`` (float32).

    ``group_norm(images, gamma, beta, groups, epsilon) -> images`` replaces our group norm. Raises
    ValueError if groups do not divide the channels of a layer.
    """
    from ipubench.models.tensorflow.cnn.factory import LayerFactory
    from ipubench.models.tensorflow.cnn.layers import Classifier

    model = network.model
    make = LayerFactory(
        tf.float32 if dtype is None else dtype,
        seed,
        _GAIN[model],
        norm=network.norm,
        groups=network.groups,
        decay=network.bn_decay,
        epsilon=_default(network.norm_epsilon, _EPSILON[model]),
        group_norm=group_norm,
    )
    if model == "efficientnet":
        from ipubench.models.tensorflow.cnn.efficientnet import efficientnet_units

        return Classifier(efficientnet_units(make, network.shape, network.classes))
    from ipubench.models.tensorflow.cnn.resnet import resnet_units

    if model == "resnet":
        return Classifier(resnet_units(make, network.size, network.classes))
    groups = network.convolution_groups
    width = _default(network.group_dim, _GROUP_DIM[model])
    return Classifier(resnet_units(make, network.size, network.classes, groups, width))


def split_units(classifier: Classifier, splits: Sequence[str]) -> List[List[Unit]]:
    """Return the units of each pipeline stage; ``splits`` name the first of each but stage one.

    Raises ValueError for a name that does not exist, and for names out of order.
    """
    cuts = cut_at([unit.name for unit in classifier.units], splits)
    return [classifier.units[a:b] for a, b in zip([0, *cuts], [*cuts, len(classifier.units)])]


def _default(value: Any, default: Any) -> Any:
    return default if value is None else value
