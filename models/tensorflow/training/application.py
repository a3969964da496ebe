"""The training recipe of the TensorFlow 2 CNN application: rates, update, loss, preprocessing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

from ipubench.models.tensorflow.training.application_optimisers import Lars, RMSprop, Sgd
from ipubench.models.tensorflow.training.application_schedules import LearningRate
from ipubench.models.tensorflow.training.auto_scaling import AutoScaledSgd
from ipubench.models.tensorflow.training.inputs import preprocess
from ipubench.models.tensorflow.training.losses import cross_entropy
from ipubench.models.tensorflow.training.optimisers import Optimiser, default_rmsprop_decay
from ipubench.models.tensorflow.training.recipe import Targets, TrainingRecipe


@dataclass(frozen=True)
class ApplicationRecipe(TrainingRecipe):
    """The optimiser with its schedule, the loss, and the remaining preprocessing.

    Options have the names and meanings of Graphcore's TensorFlow 2 CNN program. The gradient of an
    update is the mean over ``gradient_accumulation`` micro batches.

    ``weight_decay`` (sgd only) is decoupled, ``l2_regularization`` is part of the gradient; both
    act on all variables. ``loss_scaling`` multiplies the loss and divides its gradients; 0 means
    off, and becomes 1. ``auto_loss_scaling`` chooses the scale instead, see
    models/tensorflow/training/auto_scaling.py. ``preprocess`` is the data set whose pixels the
    device must preprocess, empty if none.
    """

    learning_rate: LearningRate
    epochs: float
    classes: int
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    l2_regularization: float = 0.0
    lars_weight_decay: float = 0.0
    lars_eeta: float = 0.001
    lars_epsilon: float = 0.0
    rmsprop_base_decay_exponent: int = -14
    rmsprop_epsilon: float = 1e-3
    loss_scaling: float = 0.0
    auto_loss_scaling: bool = False
    label_smoothing: float = 0.0
    gradient_accumulation: int = 1
    preprocess: str = ""
    fused: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.loss_scaling:
            object.__setattr__(self, "loss_scaling", 1.0)

    @property
    def total_updates(self) -> int:
        """Weight updates of the whole run."""
        return max(1, int(self.epochs * self.learning_rate.updates_per_epoch))

    def check(self) -> None:
        """Raise ValueError for invalid values, with the option and the rule."""
        super().check()
        self.learning_rate.check()
        self._check_optimizer()
        if self.auto_loss_scaling:
            self._check_auto_loss_scaling()

    def _check_optimizer(self) -> None:
        if self.weight_decay and self.optimizer != "sgd":
            own = " (lars has its weight_decay in optimizer_params)"
            raise ValueError(
                f"weight_decay={self.weight_decay:g} acts on sgd only: set l2_regularization with "
                f"{self.optimizer}{own if self.optimizer == 'lars' else ''}"
            )
        if self.optimizer == "rmsprop":
            if self.rmsprop_epsilon <= 0:
                raise ValueError(f"rmsprop's epsilon {self.rmsprop_epsilon:g} is not above 0")
            if not 0 < self._rmsprop_decay < 1:
                raise ValueError(
                    f"rmsprop's decay, 1 - 2^{self.rmsprop_base_decay_exponent} * "
                    f"{self.learning_rate.global_batch_size}, is not in (0, 1): choose another "
                    "base_decay_exponent in optimizer_params, or another global batch size"
                )

    @property
    def _rmsprop_decay(self) -> float:
        batch = self.learning_rate.global_batch_size
        return default_rmsprop_decay(batch, self.rmsprop_base_decay_exponent)

    def _check_auto_loss_scaling(self) -> None:
        """Raise ValueError for what the original refuses, and for a scale that would be unused."""
        rate = self.learning_rate
        wrong = {
            f"the optimizer {self.optimizer}": self.optimizer != "sgd",
            f"momentum {self.momentum:g}": self.momentum != 0,
            f"the schedule {rate.schedule}": rate.schedule != "const",
            f"the warm-up {rate.warmup_mode}": bool(rate.warmup_mode),
            f"loss_scaling={self.loss_scaling:g}": self.loss_scaling != 1,
        }
        found = [name for name, present in wrong.items() if present]
        if found:
            raise ValueError(
                "auto_loss_scaling is for sgd without momentum, a constant learning rate without "
                f"warm-up and no explicit loss_scaling: leave out {', '.join(found)}"
            )

    def rate(self, update: int) -> float:
        """Return the learning rate of a weight update, counted from 0."""
        return self.learning_rate.of(update)

    def optimiser_for(self, tf: Any, fuse: bool = True) -> Optimiser:
        """Return the optimiser; ``fuse`` is for a host (see Optimiser)."""
        shared: Dict[str, Any] = {
            "l2": self.l2_regularization,
            "loss_scaling": self.loss_scaling,
            "momentum": self.momentum,
            "fuse": fuse,
        }
        if self.optimizer == "sgd":
            kind = AutoScaledSgd if self.auto_loss_scaling else Sgd
            return kind(tf, weight_decay=self.weight_decay, **shared)
        if self.optimizer == "lars":
            return Lars(
                tf,
                weight_decay=self.lars_weight_decay,
                eeta=self.lars_eeta,
                epsilon=self.lars_epsilon,
                **shared,
            )
        return RMSprop(tf, decay=self._rmsprop_decay, epsilon=self.rmsprop_epsilon, **shared)

    def _network_input(
        self, tf: Any, images: Any, seed: Any, dtype: Any, normalised: bool, narrow: bool
    ) -> Any:
        """Return the images. ``seed`` decides which are mirrored; None mirrors none."""
        left = "" if normalised else self.preprocess
        return preprocess(tf, images, dtype, left, self.fused, seed, narrow)

    def loss(self, tf: Any, logits: Any, targets: Targets) -> Any:
        """Return the mean cross-entropy, a float32 scalar, without regularisation and scaling.

        ``label_smoothing`` s of a label's target is spread over all classes: 1 - s + s / classes.
        """
        # cross_entropy spreads over the other classes, also s / classes each.
        spread = self.label_smoothing * (self.classes - 1) / self.classes
        return cross_entropy(tf, logits, targets.labels, label_smoothing=spread)
