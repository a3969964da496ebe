"""The networks of the image classification application, by name, and how to build one."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

from ipubench.models.tensorflow.cnn.named_blocks import (
    BOTTLENECKS,
    CIFAR_RESNETS,
    MODEL_NAMES,
    RESNETS,
    TOYS,
    norm_channels,
    toy_features,
    unit_names,
)

if TYPE_CHECKING:
    from ipubench.models.tensorflow.cnn.layers import Classifier, GroupNormFunction


__all__ = ["MODEL_NAMES", "NORMS", "NamedNetwork", "build_named"]
#: The first two compute the same. In the original they differ in who assigns the moving averages,
#: the layer or the optimiser; here it is never the layer.
NORMS = ("batch_norm", "custom_batch_norm", "group_norm")


@dataclass(frozen=True)
class NamedNetwork:
    """One network. Raises ValueError for impossible values.

    ``image_shape`` is (height, width, channels). A group norm has either ``groups`` or
    ``channels_per_group``. ``replica_group`` replicas share the statistics of their batch norms;
    on a host they do so where the run is told how (``Run.reduce``), on IPUs the SDK's option
    ``norms.experimental.distributed_batch_norm_replica_group_size`` does it.
    """

    model_name: str
    classes: int = 1000
    image_shape: Tuple[int, int, int] = (224, 224, 3)
    norm: str = "custom_batch_norm"
    norm_momentum: float = 0.97  # of a batch norm's moving averages
    groups: int = 0
    channels_per_group: int = 0
    norm_epsilon: float = 1.001e-5
    replica_group: int = 1

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise ValueError for values that make no network."""
        _choose("model_name", self.model_name, MODEL_NAMES)
        _choose("norm", self.norm, NORMS)
        for name in ("classes", "replica_group"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: choose 1 or more")
        if len(self.image_shape) != 3 or min(self.image_shape) < 1:
            raise ValueError(
                f"image_shape={self.image_shape}: choose three numbers of 1 or more, "
                "height, width and channels"
            )
        if not 0.0 <= self.norm_momentum < 1.0:
            raise ValueError(
                f"norm_momentum={self.norm_momentum}: choose a number of 0 or more, below 1"
            )
        if self.norm_epsilon <= 0.0:
            raise ValueError(f"norm_epsilon={self.norm_epsilon}: choose a number above 0")
        if self.model_name in TOYS and not toy_features(*self.image_shape[:2]):
            raise ValueError(
                f"{self.model_name} leaves nothing of images of {self.image_shape[0]} x "
                f"{self.image_shape[1]} pixels: choose images of 27 x 27 pixels or more"
            )
        self._check_groups()

    def _check_groups(self) -> None:
        if self.norm != "group_norm":
            for name in ("groups", "channels_per_group"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name}={getattr(self, name)} is of a group norm, and norm={self.norm}; "
                        f"choose norm=group_norm, or leave out {name}"
                    )
            return
        if self.replica_group > 1:
            raise ValueError(
                f"replica_group={self.replica_group} is of batch norms: a group norm needs no "
                "other image; choose replica_group=1"
            )
        if (self.groups > 0) == (self.channels_per_group > 0):
            raise ValueError(
                f"groups={self.groups} and channels_per_group={self.channels_per_group}: "
                "a group norm needs one of the two"
            )
        name = "groups" if self.groups else "channels_per_group"
        divisor = getattr(self, name)
        for channels in norm_channels(self.model_name):
            if channels % divisor:
                raise ValueError(
                    f"{name}={divisor} does not divide the {channels} channels of a norm of "
                    f"{self.model_name}; choose a divisor of {norm_channels(self.model_name)[0]}"
                )

    @property
    def unit_names(self) -> List[str]:
        """The names of the units in order; pipelines are split at all but the first."""
        return unit_names(self.model_name)


def _choose(name: str, value: str, valid: Tuple[str, ...]) -> None:
    if value not in valid:
        near = difflib.get_close_matches(value, valid)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"{name}={value}: choose {', '.join(valid)}{hint}")


def build_named(
    tf: Any,
    network: NamedNetwork,
    dtype: Any = None,
    seed: int = 0,
    group_norm: Optional[GroupNormFunction] = None,
) -> Classifier:
    """Return a network with seeded random weights, variables of ``dtype`` (float32).

    Its last unit, "top", gives the logits. ``group_norm(images, gamma, beta, groups, epsilon) ->
    images`` computes group norms in place of our own.
    """
    from ipubench.models.tensorflow.cnn.factory import LayerFactory
    from ipubench.models.tensorflow.cnn.layers import Classifier
    from ipubench.models.tensorflow.cnn.named_units import (
        cifar_units,
        named_resnet_units,
        toy_units,
    )

    make = LayerFactory(
        tf.float32 if dtype is None else dtype,
        seed,
        1.0,  # as Keras' VarianceScaling
        norm="group" if network.norm == "group_norm" else "batch",
        groups=network.groups,
        channels_per_group=network.channels_per_group,
        decay=network.norm_momentum,
        epsilon=network.norm_epsilon,
        replica_group=network.replica_group,
        group_norm=group_norm,
    )
    name, classes, channels = network.model_name, network.classes, network.image_shape[2]
    if name in RESNETS:
        return Classifier(named_resnet_units(make, name, name in BOTTLENECKS, channels, classes))
    if name in CIFAR_RESNETS:
        return Classifier(cifar_units(make, name, channels, classes))
    return Classifier(toy_units(make, name, network.image_shape, classes))
