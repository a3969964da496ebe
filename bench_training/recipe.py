"""The options of training an image classifier in TensorFlow, which are its recipe."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, Dict, Optional, Tuple

from ipubench.bench_training.classifier import Classifier
from ipubench.fixtures.case.options import option
from ipubench.fixtures.schedule.batches import Batches
from ipubench.models.tensorflow.cnn.classification import Network
from ipubench.models.tensorflow.training import schedules
from ipubench.models.tensorflow.training.inputs import network_input
from ipubench.models.tensorflow.training.losses import cross_entropy
from ipubench.models.tensorflow.training.mixing import mix, mixup_coefficients
from ipubench.models.tensorflow.training.optimisers import (
    Lars,
    Momentum,
    Optimiser,
    RMSprop,
    WeightAverages,
    default_rmsprop_decay,
)
from ipubench.models.tensorflow.training.recipe import (
    FLOAT32_MAX,
    IMAGENET_IMAGES,
    Targets,
    check_numbers,
)
from ipubench.models.tensorflow.training.schedules import (
    Schedule,
    base_rate,
    default_exponent,
    updates_per_epoch,
)

OPTIMISERS = ("SGD", "momentum", "RMSprop", "LARS")
SCHEDULES = ("stepped", "cosine", "exponential", "polynomial_decay_lr")
MAX_EPOCHS = 1e9  # larger numbers make no sense, and up to here updates are counted exactly
# Parts of the names of variables without weight decay: norms. Biases have weight decay.
NOT_DECAYED = ("beta", "gamma")


@dataclass(frozen=True)
class RecipeOptions(Classifier):
    """How the weights are trained: a Recipe."""

    bn_decay: float = option(0.97, "decay of a batch norm's moving averages", minimum=0.0)
    dropout_rate: float = option(-1.0, "EfficientNet's dropout; below 0: as the size")
    block_survival_prob: float = option(
        0.8, "EfficientNet: what the share of kept blocks falls towards, from 1", minimum=0.0
    )
    train_with_valid_preprocessing: bool = option(
        False, "real images are cut out of the centre in training too"
    )
    gradient_accumulation_count: int = option(1, "micro batches per weight update", minimum=1)
    epochs: float = option(100.0, "length of the schedule, and most that an IPU runs", minimum=0.0)
    logs_per_epoch: int = option(
        16, "least host calls per epoch on an IPU", minimum=1, ipu_only=True
    )
    optimiser: str = option("SGD", "what updates the weights", choices=OPTIMISERS)
    momentum: float = option(0.9, "of momentum, RMSprop and LARS", minimum=0.0)
    base_learning_rate: int = option(
        0, "N of the rate 2^N x global batch size; 0: by optimiser and model"
    )
    abs_learning_rate: float = option(0.0, "the rate itself; 0: 2^N x global batch size")
    lr_schedule: str = option("stepped", "how the rate falls", choices=SCHEDULES)
    warmup_epochs: float = option(5.0, "epochs during which the rate rises", minimum=0.0)
    learning_rate_decay: float = option(0.1, "stepped: factor of each step", minimum=0.0)
    learning_rate_schedule: Tuple[float, ...] = option(
        (0.3, 0.6, 0.8, 0.9), "stepped: shares of the run at which the rate falls"
    )
    lr_decay_rate: float = option(0.97, "exponential: factor of each drop", minimum=0.0)
    lr_drops: int = option(146, "exponential: drops in the run", minimum=1)
    poly_lr_decay_power: float = option(2.0, "polynomial: its power", minimum=0.0)
    poly_lr_end_ratio: float = option(1e-5, "polynomial: last rate over first", minimum=0.0)
    abs_end_learning_rate: float = option(
        0.0, "polynomial: last rate; 0: by the ratio", minimum=0.0
    )
    label_smoothing: float = option(0.0, "share of the label's mass on other classes", minimum=0.0)
    weight_decay: float = option(-1.0, "of kernels and biases; below 0: 1e-4, EfficientNet 1e-5")
    loss_scaling: float = option(128.0, "factor of the loss that gradients are divided by")
    rmsprop_decay: float = option(0.0, "of squared gradients; 0: 1 - 2^N x global batch size")
    rmsprop_base_decay_exp: int = option(-14, "N of RMSprop's decay")
    rmsprop_epsilon: float = option(0.001, "added to RMSprop's mean square", minimum=0.0)
    lars_eeta: float = option(0.001, "LARS: trust in a layer's rate", minimum=0.0)
    lars_epsilon: float = option(0.0, "LARS: added to the denominator", minimum=0.0)
    lars_weight_decay: float = option(-1.0, "LARS: below 0 that of weight_decay")
    lars_skip_list: Tuple[str, ...] = option(
        ("beta", "gamma", "bias"), "LARS: variables with these words in their name are left out"
    )
    mixup_alpha: float = option(0.0, "beta(alpha, alpha) draws how images mix; 0: off", minimum=0.0)
    cutmix_lambda: float = option(1.0, "share of an image that cutmix keeps; 1: off", minimum=0.0)
    weight_avg_exp: float = option(
        0.0, "decay of an average of the weights, taken at each update; 0: off", minimum=0.0
    )

    def idle(self) -> Dict[str, str]:
        """Return unused options: those of real images, and those that others replace."""
        # Repeated or random images are not worth changing.
        of_images = ("train_with_valid_preprocessing", "mixup_alpha", "cutmix_lambda")
        unused = {} if self.data == "real" else dict.fromkeys(of_images, "it needs data=real")
        if self.optimiser == "LARS" and self.lars_weight_decay >= 0:
            unused["weight_decay"] = "LARS uses lars_weight_decay"
        return {**super().idle(), **unused}

    @property
    def network(self) -> Network:
        """The network, with its training options. Raises ValueError for an unknown one."""
        return dataclasses.replace(
            super().network,
            bn_decay=self.bn_decay,
            dropout_rate=None if self.dropout_rate < 0 else self.dropout_rate,
            block_survival_prob=self.block_survival_prob,
        )

    @property
    def global_batch_size(self) -> int:
        """Images of one weight update over all replicas."""
        return self._batches.global_batch_size

    @property
    def shown_batch(self) -> str:
        return self._batches.shown

    @property
    def _batches(self) -> Batches:
        return Batches(self.micro_batch_size, self.replicas, self.gradient_accumulation_count)

    @property
    def updates_per_epoch(self) -> int:
        """Weight updates in one pass over ImageNet, rounded down; at least one."""
        return updates_per_epoch(IMAGENET_IMAGES, self.global_batch_size)

    @property
    def gradient_accumulation(self) -> int:
        return self.gradient_accumulation_count

    @property
    def total_updates(self) -> int:
        return max(1, int(self.epochs * self.updates_per_epoch))

    def rate(self, update: int) -> float:
        return self._schedule.rate(update)

    @cached_property
    def _schedule(self) -> Schedule:
        base, total = self.full_rate, self.total_updates
        warmup = self.warmup_epochs * self.updates_per_epoch
        curves: Dict[str, Callable[[], schedules.Curve]] = {
            "stepped": lambda: schedules.dropping(
                base, self.learning_rate_decay, total, self.learning_rate_schedule
            ),
            "cosine": lambda: schedules.cosine(base, total),
            "exponential": lambda: schedules.exponential(
                base, self.lr_decay_rate, total, self.lr_drops
            ),
            "polynomial_decay_lr": lambda: schedules.polynomial(
                base,
                self.abs_end_learning_rate or self.poly_lr_end_ratio * base,
                self.poly_lr_decay_power,
                total,
                constant_until=warmup,
            ),
        }
        return Schedule(curves[self.lr_schedule](), schedules.rising(warmup))

    @property
    def full_rate(self) -> float:
        """The rate after the warm-up. Raises ValueError if it is too large."""
        if self.abs_learning_rate:
            return self.abs_learning_rate
        efficientnet = self.model == "efficientnet"
        exponent = self.base_learning_rate or default_exponent(self.optimiser, efficientnet)
        return base_rate(exponent, self.global_batch_size)

    def optimiser_for(self, tf: Any, fuse: bool = True) -> Optimiser:
        """Return the optimiser, with the formulas of TensorFlow 1."""
        options: Dict[str, Any] = {
            "momentum": Momentum(None if self.optimiser == "SGD" else self.momentum),
            "weight_decay": self._weight_decay,
            "loss_scaling": self.loss_scaling,
            "skipped": NOT_DECAYED,
            "fuse": fuse,
        }
        if self.optimiser == "RMSprop":
            return RMSprop(tf, decay=self._rmsprop_decay, epsilon=self.rmsprop_epsilon, **options)
        if self.optimiser == "LARS":
            options["skipped"] = self.lars_skip_list
            if self.lars_weight_decay >= 0:
                options["weight_decay"] = self.lars_weight_decay
            return Lars(tf, eeta=self.lars_eeta, epsilon=self.lars_epsilon, **options)
        return Optimiser(tf, **options)

    @property
    def _rmsprop_decay(self) -> float:
        return self.rmsprop_decay or default_rmsprop_decay(
            self.global_batch_size, self.rmsprop_base_decay_exp
        )

    @property
    def _weight_decay(self) -> float:
        if self.weight_decay >= 0:
            return self.weight_decay
        return 1e-5 if self.model == "efficientnet" else 1e-4

    def averages_for(self, tf: Any, variables: Any, fuse: bool = True) -> Optional[WeightAverages]:
        if not self.weight_avg_exp:
            return None
        return WeightAverages(tf, variables, self.weight_avg_exp, fuse=fuse)

    # Repeated images, or random ones without labels, are not worth mixing.
    @property
    def _mixup_alpha(self) -> float:
        return self.mixup_alpha if self.data == "real" else 0.0

    @property
    def _cutmix_lambda(self) -> float:
        return self.cutmix_lambda if self.data == "real" else 1.0

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with each other."""
        return self._mixup_alpha > 0 or self._cutmix_lambda < 1

    def mixup_coefficients(self, tf: Any, batch_size: int, seed: Any) -> Optional[Any]:
        if not self._mixup_alpha:
            return None
        return mixup_coefficients(tf, batch_size, self._mixup_alpha, seed)

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
        """Return the images normalised and mixed with each other, and their targets."""
        images = network_input(tf, images, dtype, self.normalise_input, normalised, narrow)
        if not self.mixes:
            return images, Targets(labels)
        images, labels, shares = mix(tf, images, labels, coefficients, self._cutmix_lambda, seed)
        return images, Targets(labels, shares)

    def loss(self, tf: Any, logits: Any, targets: Targets) -> Any:
        return cross_entropy(tf, logits, targets.labels, targets.shares, self.label_smoothing)

    def check(self) -> None:
        """Raise ValueError for invalid values, with the option and the rule."""
        super().check()
        check_numbers(self.momentum, self.loss_scaling, self.label_smoothing)
        if not 0 < self.epochs <= MAX_EPOCHS:
            raise ValueError(f"epochs={self.epochs:g} is not above 0, and up to {MAX_EPOCHS:g}")
        if not 0 < self.full_rate <= FLOAT32_MAX:
            raise ValueError(f"the learning rate {self.full_rate:g} is not a float32 above 0")
        for place in self.learning_rate_schedule:
            if not 0 <= place <= 1:
                raise ValueError(
                    f"learning_rate_schedule={place:g} is not a share of the run, from 0 to 1"
                )
        self._check_last_rate()
        if not 0 < self._cutmix_lambda <= 1:
            raise ValueError(f"cutmix_lambda={self.cutmix_lambda:g} is not in (0, 1]")
        if not 0 <= self.weight_avg_exp < 1:
            raise ValueError(f"weight_avg_exp={self.weight_avg_exp:g} is not in [0, 1)")
        if self.optimiser == "RMSprop" and not 0 < self._rmsprop_decay < 1:
            raise ValueError(
                f"RMSprop's decay {self._rmsprop_decay:g} is not in (0, 1): give rmsprop_decay, or "
                "choose rmsprop_base_decay_exp and the global batch size so that it is"
            )
        if self.mixes and self.micro_batch_size < 2:
            raise ValueError(
                "mixup_alpha and cutmix_lambda mix the images of a micro batch with each other: "
                "micro_batch_size must be 2 or more"
            )

    def _check_last_rate(self) -> None:
        try:
            last = self.rate(self.total_updates)
        except OverflowError:
            last = math.inf
        if not last <= FLOAT32_MAX:
            raise ValueError(
                f"the learning rate of the {self.lr_schedule} schedule grows without bounds: its "
                "factor or ratio is too large"
            )
