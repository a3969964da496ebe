"""The settings and the results of one forward pass through a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Tuple

if TYPE_CHECKING:
    from ipubench.models.tensorflow.cnn.layers import BatchNorm


class ForwardPass:
    """One forward pass.

    In ``training`` batch norms use their batch's statistics and add them to ``statistics``: a layer
    that assigned its moving averages would do so twice if it is recomputed. ``seed``, an int32
    tensor [2], makes dropout and drop-connect random; without it they do nothing. Equal seeds draw
    equal numbers, also when a layer is recomputed. With ``dense_groups``, grouped convolutions
    except depthwise ones are computed as dense ones with zeros, for a TensorFlow that cannot
    differentiate them. ``reduce`` returns the mean of a tensor over the replicas that share the
    statistics of their batch norms; all replicas call it in the same order, in the forward and in
    the backward pass. With ``on_ipu``, activations keep as little for their gradient as an IPU's
    memory requires. With ``narrow_norms``, batch norms take scale, offset and averages in the
    images' dtype; otherwise in float32, to which an IPU then casts the images.
    """

    def __init__(
        self,
        training: bool,
        seed: Any = None,
        dense_groups: bool = False,
        reduce: Optional[Callable[[Any], Any]] = None,
        on_ipu: bool = False,
        narrow_norms: bool = False,
    ) -> None:
        self.training = training
        self.seed = seed
        self.dense_groups = dense_groups
        self.reduce = reduce
        self.on_ipu = on_ipu
        self.narrow_norms = narrow_norms
        #: (layer, mean [C], unbiased variance [C]), of the norm's type, in the order of the layers.
        self.statistics: List[Tuple[BatchNorm, Any, Any]] = []

    @property
    def random(self) -> bool:
        """Whether layers draw random numbers."""
        return self.training and self.seed is not None

    def update_moving_averages(self) -> None:
        """Move each batch norm's averages towards the statistics of this pass."""
        for norm, mean, variance in self.statistics:
            norm.update_moving_averages(mean, variance)


def through(layers: Iterable[Any], images: Any, run: ForwardPass) -> Any:
    """Apply layers, or units, in sequence."""
    for layer in layers:
        images = layer(images, run)
    return images
