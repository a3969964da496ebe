"""The networks of the image classification application, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, List, Optional, Tuple

from ipubench.models.tensorflow.cnn.named_blocks import (
    BOTTLENECKS,
    CIFAR_RESNETS,
    MODEL_NAMES,
    RESNETS,
    unit_names,
)

if TYPE_CHECKING:
    from ipubench.models.tensorflow.cnn.layers import Classifier, GroupNormFunction


__all__ = ["MODEL_NAMES", "NamedNetwork", "build_named"]
NORM_EPSILON = 1.001e-5


@dataclass(frozen=True)
class NamedNetwork:
    """One network, with values that are valid together.

    ``image_shape`` is (height, width, channels). The norms batch_norm and custom_batch_norm compute
    the same: in the original, the layer or the optimiser assigns the moving averages; here the
    layer never does. A group norm has either ``groups`` or ``channels_per_group``.
    ``replica_group`` replicas share the statistics of their batch norms: on a host through
    ``ForwardPass.reduce``, on IPUs by the SDK's option
    ``norms.experimental.distributed_batch_norm_replica_group_size``.
    """

    model_name: str
    classes: int = 1000
    image_shape: Tuple[int, int, int] = (224, 224, 3)
    norm: str = "custom_batch_norm"
    norm_momentum: float = 0.97  # of a batch norm's moving averages
    groups: int = 0
    channels_per_group: int = 0
    replica_group: int = 1

    @property
    def unit_names(self) -> List[str]:
        """The names of the units in order; pipelines can be split at all but the first."""
        return unit_names(self.model_name)


def build_named(
    tf: Any,
    network: NamedNetwork,
    dtype: Any = None,
    seed: int = 0,
    group_norm: Optional[GroupNormFunction] = None,
) -> Classifier:
    """Return a network with seeded random weights, variables of ``dtype`` (float32).

    Its last unit, "top", returns the logits. ``group_norm(images, gamma, beta, groups, epsilon) ->
    images`` replaces our group norm.
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
        epsilon=NORM_EPSILON,
        replica_group=network.replica_group,
        group_norm=group_norm,
    )
    name, classes, channels = network.model_name, network.classes, network.image_shape[2]
    if name in RESNETS:
        return Classifier(named_resnet_units(make, name, name in BOTTLENECKS, channels, classes))
    if name in CIFAR_RESNETS:
        return Classifier(cifar_units(make, name, channels, classes))
    return Classifier(toy_units(make, name, network.image_shape, classes))
