"""The training recipe of a classifier: everything but the network, the data and the device."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ipubench.models.tensorflow.training import schedules
from ipubench.models.tensorflow.training.inputs import network_input
from ipubench.models.tensorflow.training.losses import cross_entropy
from ipubench.models.tensorflow.training.mixing import mix, mixup_coefficients
from ipubench.models.tensorflow.training.optimisers import (
    OPTIMISERS,
    SKIPPED,
    Optimiser,
    WeightAverages,
)

IMAGENET_IMAGES = 1281167
FLOAT32_MAX = 3.4028235e38
MAX_EPOCHS = 1e9  # larger numbers make no sense, and up to here updates are counted exactly
# Parts of the names of variables without weight decay: norms. Biases have weight decay.
NOT_DECAYED = ("beta", "gamma")


class Targets(NamedTuple):
    """The labels of a batch [N], or for mixed images [N, K] with shares [N, K]."""

    labels: Any
    shares: Optional[Any] = None


class TrainingRecipe(ABC):
    """The interface of a recipe to a runtime, for all programs.

    ``gradient_accumulation`` micro batches make one update. ``seed`` seeds all random draws.
    """

    momentum: float
    loss_scaling: float
    label_smoothing: float
    gradient_accumulation: int
    seed: int

    def check(self) -> None:
        """Raise ValueError for invalid values, with the option and the rule."""
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum:g} is not in [0, 1)")
        if not 0 < self.loss_scaling <= FLOAT32_MAX:
            raise ValueError(f"loss_scaling={self.loss_scaling:g} is not a float32 above 0")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing={self.label_smoothing:g} is not in [0, 1)")

    @property
    @abstractmethod
    def total_updates(self) -> int:
        """Weight updates of the whole run."""

    @abstractmethod
    def rate(self, update: int) -> float:
        """Return the learning rate of a weight update, counted from 0."""

    @abstractmethod
    def optimiser_for(self, tf: Any, fuse: bool = True) -> Optimiser:
        """Return the optimiser; ``fuse`` is for a host (see Optimiser)."""

    def averages_for(self, tf: Any, variables: Any, fuse: bool = True) -> Optional[WeightAverages]:
        """Return the weights' averages, or None if there are none."""
        return None

    def mixup_coefficients(self, tf: Any, batch_size: int, seed: Any) -> Optional[Any]:
        """Return the share [batch_size] that each image keeps in mixup, or None without mixup."""
        return None

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
        choices.
        """
        images = self._network_input(tf, images, seed, dtype, normalised, narrow)
        return self._mixed(tf, images, labels, coefficients, seed)

    @abstractmethod
    def _network_input(
        self, tf: Any, images: Any, seed: Any, dtype: Any, normalised: bool, narrow: bool
    ) -> Any:
        """Return images as the network takes them."""

    def _mixed(
        self, tf: Any, images: Any, labels: Any, coefficients: Optional[Any], seed: Any
    ) -> Tuple[Any, Targets]:
        """Return the images mixed with each other, and their targets."""
        return images, Targets(labels)

    @abstractmethod
    def loss(self, tf: Any, logits: Any, targets: Targets) -> Any:
        """Return the mean cross-entropy, a float32 scalar, without regularisation and scaling."""


@dataclass(frozen=True)
class Recipe(TrainingRecipe):
    """The optimiser with its schedule, the loss, and the preprocessing of a batch.

    ``base_rate`` is the schedule's first rate after warm-up. ``gradient_accumulation`` micro
    batches make one update. ``weight_average`` is the decay of an average of the weights, 0 for
    none. ``cutmix_lambda`` 1 and ``mixup_alpha`` 0 disable mixing.
    """

    optimiser: str
    base_rate: float
    schedule: str
    updates_per_epoch: int
    epochs: float
    warmup_epochs: float = 5.0
    momentum: float = 0.9
    step_decay: float = 0.1
    step_places: Tuple[float, ...] = schedules.DROPS
    drop_decay: float = 0.97
    drops: int = 146
    polynomial_power: float = 2.0
    polynomial_end_ratio: float = 1e-5
    end_rate: float = 0.0
    label_smoothing: float = 0.0
    weight_decay: float = 0.0
    loss_scaling: float = 1.0
    rmsprop_decay: float = 0.9
    rmsprop_epsilon: float = 1e-3
    lars_eeta: float = 1e-3
    lars_epsilon: float = 0.0
    lars_weight_decay: float = 0.0
    lars_skip_list: Tuple[str, ...] = SKIPPED
    mixup_alpha: float = 0.0
    cutmix_lambda: float = 1.0
    weight_average: float = 0.0
    normalise_input: bool = False
    gradient_accumulation: int = 1
    seed: int = 0

    @property
    def total_updates(self) -> int:
        """Weight updates of the whole run."""
        return max(1, int(self.epochs * self.updates_per_epoch))

    def check(self) -> None:
        """Raise ValueError for invalid values, with the option and the rule."""
        super().check()
        if not 0 < self.epochs <= MAX_EPOCHS:
            raise ValueError(f"epochs={self.epochs:g} is not above 0, and up to {MAX_EPOCHS:g}")
        if not 0 < self.base_rate <= FLOAT32_MAX:
            raise ValueError(f"the learning rate {self.base_rate:g} is not a float32 above 0")
        for place in self.step_places:
            if not 0 <= place <= 1:
                raise ValueError(
                    f"learning_rate_schedule={place:g} is not a share of the run, from 0 to 1"
                )
        self._check_last_rate()
        if not 0 < self.cutmix_lambda <= 1:
            raise ValueError(f"cutmix_lambda={self.cutmix_lambda:g} is not in (0, 1]")
        if not 0 <= self.weight_average < 1:
            raise ValueError(f"weight_avg_exp={self.weight_average:g} is not in [0, 1)")
        if self.optimiser == "RMSprop" and not 0 < self.rmsprop_decay < 1:
            raise ValueError(
                f"RMSprop's decay {self.rmsprop_decay:g} is not in (0, 1): give rmsprop_decay, or "
                "choose rmsprop_base_decay_exp and the global batch size so that it is"
            )

    def _check_last_rate(self) -> None:
        schedule = self._schedule()
        try:
            last = schedule.rate(schedule.total)
        except OverflowError:
            last = math.inf
        if not last <= FLOAT32_MAX:
            raise ValueError(
                f"the learning rate of the {self.schedule} schedule grows without bounds: its "
                "factor or ratio is too large"
            )

    def rate(self, update: int) -> float:
        """Return the learning rate of a weight update, counted from 0."""
        return self._schedule().rate(update)

    def optimiser_for(self, tf: Any, fuse: bool = True) -> Optimiser:
        """Return the optimiser; ``fuse`` is for a host (see Optimiser)."""
        lars = self.optimiser == "LARS"
        options: Dict[str, Any] = {
            "weight_decay": self.lars_weight_decay if lars else self.weight_decay,
            "loss_scaling": self.loss_scaling,
            "skipped": self.lars_skip_list if lars else NOT_DECAYED,
            "fuse": fuse,
        }
        if self.optimiser != "SGD":
            options.update(momentum=self.momentum)
        if self.optimiser == "RMSprop":
            options.update(rmsprop_decay=self.rmsprop_decay, rmsprop_epsilon=self.rmsprop_epsilon)
        if lars:
            options.update(lars_eeta=self.lars_eeta, lars_epsilon=self.lars_epsilon)
        return OPTIMISERS[self.optimiser](tf, **options)

    def averages_for(self, tf: Any, variables: Any, fuse: bool = True) -> Optional[WeightAverages]:
        """Return the weights' averages, or None if there are none."""
        if not self.weight_average:
            return None
        return WeightAverages(tf, variables, self.weight_average, fuse=fuse)

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with each other."""
        return self.mixup_alpha > 0 or self.cutmix_lambda < 1

    def mixup_coefficients(self, tf: Any, batch_size: int, seed: Any) -> Optional[Any]:
        """Return the share [batch_size] that each image keeps in mixup, or None without mixup."""
        if not self.mixup_alpha:
            return None
        return mixup_coefficients(tf, batch_size, self.mixup_alpha, seed)

    def _network_input(
        self, tf: Any, images: Any, seed: Any, dtype: Any, normalised: bool, narrow: bool
    ) -> Any:
        return network_input(tf, images, dtype, self.normalise_input, normalised, narrow)

    def _mixed(
        self, tf: Any, images: Any, labels: Any, coefficients: Optional[Any], seed: Any
    ) -> Tuple[Any, Targets]:
        if not self.mixes:
            return images, Targets(labels)
        images, labels, shares = mix(tf, images, labels, coefficients, self.cutmix_lambda, seed)
        return images, Targets(labels, shares)

    def loss(self, tf: Any, logits: Any, targets: Targets) -> Any:
        """Return the mean cross-entropy, a float32 scalar, without weight decay and scaling."""
        return cross_entropy(tf, logits, targets.labels, targets.shares, self.label_smoothing)

    def _schedule(self) -> schedules.Schedule:
        of_schedule: Dict[str, Dict[str, Any]] = {
            "stepped": {"decay": self.step_decay, "drops": self.step_places},
            "exponential": {"decay": self.drop_decay, "drops": self.drops},
            "polynomial_decay_lr": {
                "power": self.polynomial_power,
                "end_ratio": self.polynomial_end_ratio,
                "end": self.end_rate or None,
            },
        }
        warmup = self.warmup_epochs * self.updates_per_epoch
        options = of_schedule.get(self.schedule, {})
        schedule = schedules.SCHEDULES[self.schedule]
        return schedule(self.base_rate, self.total_updates, warmup, **options)
