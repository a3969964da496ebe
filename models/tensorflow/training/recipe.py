"""The training recipe of a classifier: everything but the network, the data and the device.

The options of each program are a recipe themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Protocol, Tuple

from ipubench.models.tensorflow.training.optimisers import Optimiser, WeightAverages

IMAGENET_IMAGES = 1281167
FLOAT32_MAX = 3.4028235e38


class Targets(NamedTuple):
    """The labels of a batch [N], or for mixed images [N, K] with shares [N, K]."""

    labels: Any
    shares: Optional[Any] = None


class Recipe(Protocol):
    """How a runtime trains a classifier."""

    @property
    def seed(self) -> int:
        """The seed of all random draws."""

    @property
    def gradient_accumulation(self) -> int:
        """Micro batches of a weight update."""

    @property
    def total_updates(self) -> int:
        """Weight updates of the whole run."""

    def rate(self, update: int) -> float:
        """Return the learning rate of a weight update, counted from 0."""

    def optimiser_for(self, tf: Any, fuse: bool = True) -> Optimiser:
        """Return the optimiser; ``fuse`` is for a host (see Optimiser)."""

    def averages_for(self, tf: Any, variables: Any, fuse: bool = True) -> Optional[WeightAverages]:
        """Return the weights' averages, or None if there are none."""

    def mixup_coefficients(self, tf: Any, batch_size: int, seed: Any) -> Optional[Any]:
        """Return the share [batch_size] that each image keeps in mixup, or None without mixup."""

    def prepare(
        self,
        tf: Any,
        images: Any,
        labels: Any,
        coefficients: Optional[Any],
        seed: Any,
        dtype: Any,
        normalised: bool = False,
        narrow: bool = False,
    ) -> Tuple[Any, Targets]:
        """Return a batch as the network takes it: images of ``dtype``, and their targets.

        ``images`` [N, H, W, C] are pixels, or already ``normalised``; with ``narrow`` the
        arithmetic is in ``dtype``. ``labels`` are integers [N]; ``seed`` int32 [2] seeds all random
        choices, and None makes none.
        """

    def loss(self, tf: Any, logits: Any, targets: Targets) -> Any:
        """Return the mean cross-entropy, a float32 scalar, without regularisation and scaling."""


def check_numbers(momentum: float, loss_scaling: float, label_smoothing: float) -> None:
    """Raise ValueError for invalid values, with the option and the rule."""
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum:g} is not in [0, 1)")
    if not 0 < loss_scaling <= FLOAT32_MAX:
        raise ValueError(f"loss_scaling={loss_scaling:g} is not a float32 above 0")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing={label_smoothing:g} is not in [0, 1)")
