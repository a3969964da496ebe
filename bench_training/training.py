"""The options of training an image classifier in TensorFlow, and their recipe."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Dict, Tuple

from ipubench.bench_training.classifier import Classifier
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.runtimes.tensorflow.cnn_options import TrainingOptions
from ipubench.fixtures.runtimes.tensorflow.pipelines import check_training
from ipubench.fixtures.schedule.batches import Batches
from ipubench.models.tensorflow.cnn.classification import Network
from ipubench.models.tensorflow.training.optimisers import OPTIMISERS, default_rmsprop_decay
from ipubench.models.tensorflow.training.recipe import IMAGENET_IMAGES, Recipe
from ipubench.models.tensorflow.training.schedules import (
    SCHEDULES,
    base_rate,
    default_exponent,
    updates_per_epoch,
)


@dataclass(frozen=True)
class RecipeOptions(Classifier):
    """How the weights are trained."""

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
    optimiser: str = option("SGD", "what updates the weights", choices=tuple(OPTIMISERS))
    momentum: float = option(0.9, "of momentum, RMSprop and LARS", minimum=0.0)
    base_learning_rate: int = option(
        0, "N of the rate 2^N x global batch size; 0: by optimiser and model"
    )
    abs_learning_rate: float = option(0.0, "the rate itself; 0: 2^N x global batch size")
    lr_schedule: str = option("stepped", "how the rate falls", choices=tuple(SCHEDULES))
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
    def recipe(self) -> Recipe:
        """How the weights are trained. Raises ValueError for invalid values."""
        return Recipe(
            optimiser=self.optimiser,
            momentum=self.momentum,
            base_rate=self.abs_learning_rate or base_rate(self._exponent, self.global_batch_size),
            schedule=self.lr_schedule,
            updates_per_epoch=self.updates_per_epoch,
            epochs=self.epochs,
            warmup_epochs=self.warmup_epochs,
            step_decay=self.learning_rate_decay,
            step_places=self.learning_rate_schedule,
            drop_decay=self.lr_decay_rate,
            drops=self.lr_drops,
            polynomial_power=self.poly_lr_decay_power,
            polynomial_end_ratio=self.poly_lr_end_ratio,
            end_rate=self.abs_end_learning_rate,
            label_smoothing=self.label_smoothing,
            weight_decay=self._weight_decay,
            loss_scaling=self.loss_scaling,
            rmsprop_decay=self._rmsprop_decay,
            rmsprop_epsilon=self.rmsprop_epsilon,
            lars_eeta=self.lars_eeta,
            lars_epsilon=self.lars_epsilon,
            lars_weight_decay=(
                self._weight_decay if self.lars_weight_decay < 0 else self.lars_weight_decay
            ),
            lars_skip_list=self.lars_skip_list,
            # Repeated images, or random ones without labels, are not worth mixing.
            mixup_alpha=self.mixup_alpha if self.data == "real" else 0.0,
            cutmix_lambda=self.cutmix_lambda if self.data == "real" else 1.0,
            weight_average=self.weight_avg_exp,
            normalise_input=self.normalise_input,
            gradient_accumulation=self.gradient_accumulation_count,
            seed=self.seed,
        )

    @property
    def _exponent(self) -> int:
        return self.base_learning_rate or default_exponent(
            self.optimiser, self.model == "efficientnet"
        )

    @property
    def _rmsprop_decay(self) -> float:
        if self.rmsprop_decay or self.optimiser != "RMSprop":
            return self.rmsprop_decay
        return default_rmsprop_decay(self.global_batch_size, self.rmsprop_base_decay_exp)

    @property
    def _weight_decay(self) -> float:
        if self.weight_decay >= 0:
            return self.weight_decay
        return 1e-5 if self.model == "efficientnet" else 1e-4


@dataclass(frozen=True)
class Training(TrainingOptions, RecipeOptions):
    """One training configuration. An update is what the original calls a weight update."""

    mode: str = option("training", "what the case does", choices=("training",))
    data: str = option("real", "synthetic, generated or real images")
    batches_per_step: int = option(
        1000, "most weight updates per host call on an IPU; a host calibrates", minimum=1
    )

    @property
    def updates_per_call(self) -> int:
        """Weight updates of one host call in the original: about one logging interval."""
        interval = max(1, self.updates_per_epoch // self.logs_per_epoch)
        calls = max(1, round(interval / self.batches_per_step))
        return interval if interval < self.batches_per_step else interval // calls

    def feed(self, data: Data) -> ImageNetFeed:
        """Return the case's images."""
        augmented = not self.train_with_valid_preprocessing
        return data.records(self, self.micro_batch_size, self.pixels, augmented)

    def check(self) -> None:
        """Raise ValueError for invalid values, and for several instances on a host."""
        super().check()
        if self.system == "host" and self.instances > 1:
            raise ValueError(
                f"instances={self.instances}: joint training of instances needs IPUs, which "
                "exchange their gradients"
            )
        if self.system != "host" and self.pipeline_splits:
            stages, count = range(self.shards), self.gradient_accumulation_count
            check_training(self.pipeline_schedule, stages, count)
        self.recipe.check()
        if self.recipe.mixes and self.micro_batch_size < 2:
            raise ValueError(
                "mixup_alpha and cutmix_lambda mix the images of a micro batch with each other: "
                "micro_batch_size must be 2 or more"
            )
