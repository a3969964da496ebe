"""How the TensorFlow 2 CNN application trains: rates, update, loss, pixels on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from ipubench.models.tensorflow.training import application_schedules as schedules
from ipubench.models.tensorflow.training.application_optimisers import Lars, RMSprop, Sgd
from ipubench.models.tensorflow.training.auto_scaling import AutoScaledSgd
from ipubench.models.tensorflow.training.device_preprocess import DATASETS, preprocess
from ipubench.models.tensorflow.training.losses import cross_entropy
from ipubench.models.tensorflow.training.optimisers import Optimiser, default_rmsprop_decay
from ipubench.models.tensorflow.training.recipe import FLOAT32_MAX, MAX_EPOCHS, Targets

OPTIMISERS = ("sgd", "lars", "rmsprop")


@dataclass(frozen=True)
class ApplicationRecipe:
    """The optimiser with its schedule, the loss, and what is left to do to a batch.

    Options have the names and meanings of Graphcore's TensorFlow 2 CNN program. Schedules are
    multiplied by ``global_batch_size``, except the ``values`` of stepped. The gradient of an update
    is the mean over ``gradient_accumulation`` micro batches.

    ``weight_decay`` (sgd only) is decoupled, ``l2_regularization`` goes into the gradient; both act
    on all variables. ``loss_scaling``: what the loss is multiplied by and its gradients are divided
    by; 0 means off, and is kept as 1. ``auto_loss_scaling`` chooses the scale instead, see
    models/tensorflow/training/auto_scaling.py. ``preprocess``: the data set whose pixels the
    device still has to preprocess, empty where nothing is left to do.
    """

    global_batch_size: int
    updates_per_epoch: int
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
    schedule: str = "const"
    initial_learning_rate: float = 1e-4
    epochs_to_total_decay: float = 0.0
    end_learning_rate_ratio: float = 0.0
    power: float = 1.0
    boundaries: Tuple[float, ...] = ()
    values: Tuple[float, ...] = ()
    warmup_mode: str = ""
    warmup_epochs: float = 0.0
    staircase: bool = False
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
        return max(1, int(self.epochs * self.updates_per_epoch))

    def check(self) -> None:
        """Raise ValueError for values without meaning, naming the option and the rule."""
        if self.updates_per_epoch < 1:
            raise ValueError(
                f"an epoch has {self.updates_per_epoch} weight updates: make the global batch "
                "smaller than the data set, or set weight_updates_per_epoch"
            )
        if not 0 < self.epochs <= MAX_EPOCHS:
            raise ValueError(f"num_epochs={self.epochs:g} is not above 0, and up to {MAX_EPOCHS:g}")
        _one_of("optimizer", self.optimizer, OPTIMISERS)
        _one_of("lr_schedule", self.schedule, schedules.SCHEDULES)
        _one_of("warmup_mode", self.warmup_mode, ("", *schedules.WARMUPS))
        _one_of("accelerator-side preprocessing", self.preprocess, ("", *DATASETS))
        self._check_optimizer()
        self._check_schedule()
        if self.auto_loss_scaling:
            self._check_auto_loss_scaling()
        if not 0 < self.loss_scaling <= FLOAT32_MAX:
            raise ValueError(f"loss_scaling={self.loss_scaling:g} is not 0 (off) or above")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing={self.label_smoothing:g} is not in [0, 1)")

    def _check_optimizer(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"the optimizer's momentum {self.momentum:g} is not in [0, 1)")
        if self.weight_decay and self.optimizer != "sgd":
            own = " (lars has a weight_decay of its own in optimizer_params)"
            raise ValueError(
                f"weight_decay={self.weight_decay:g} acts on sgd only: set l2_regularization with "
                f"{self.optimizer}{own if self.optimizer == 'lars' else ''}"
            )
        for name in ("weight_decay", "l2_regularization", "lars_weight_decay", "lars_epsilon"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name):g} is below 0")
        if self.optimizer == "rmsprop":
            if self.rmsprop_epsilon <= 0:
                raise ValueError(f"rmsprop's epsilon {self.rmsprop_epsilon:g} is not above 0")
            default_rmsprop_decay(self.global_batch_size, self.rmsprop_base_decay_exponent)

    def _check_schedule(self) -> None:
        if self.power < 0 or self.end_learning_rate_ratio < 0:
            raise ValueError(
                f"power={self.power:g} or end_learning_rate_ratio="
                f"{self.end_learning_rate_ratio:g} of the schedule is below 0"
            )
        if self.schedule == "stepped":
            self._check_steps()
        elif self.schedule != "const" and self._decay_updates < 1:
            raise ValueError(
                f"the {self.schedule} schedule needs epochs_to_total_decay of at least one weight "
                f"update, not {self.epochs_to_total_decay:g} epochs of {self.updates_per_epoch}"
            )
        if self.warmup_epochs < 0 or (self.warmup_epochs and not self.warmup_mode):
            raise ValueError(
                f"warmup_epochs={self.warmup_epochs:g}: a warm-up has 0 or more epochs and a "
                "warmup_mode, shift or mask"
            )
        rates = self.values if self.schedule == "stepped" else (self._first_rate,)
        if not all(0 <= rate <= FLOAT32_MAX for rate in rates):
            raise ValueError(f"the learning rate {max(rates):g} is not a float32 of 0 or above")

    def _check_steps(self) -> None:
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"a stepped schedule has one more of values than of boundaries, not "
                f"{len(self.values)} values for {len(self.boundaries)} boundaries"
            )
        if list(self.boundaries) != sorted(self.boundaries):
            raise ValueError(f"boundaries={list(self.boundaries)} of the schedule do not rise")

    def _check_auto_loss_scaling(self) -> None:
        """Refuse what the original refuses, and a scale that would not be used."""
        wrong = {
            f"the optimizer {self.optimizer}": self.optimizer != "sgd",
            f"momentum {self.momentum:g}": self.momentum != 0,
            f"the schedule {self.schedule}": self.schedule != "const",
            f"the warm-up {self.warmup_mode}": bool(self.warmup_mode),
            f"loss_scaling={self.loss_scaling:g}": self.loss_scaling != 1,
        }
        found = [name for name, present in wrong.items() if present]
        if found:
            raise ValueError(
                "auto_loss_scaling is for sgd without momentum, a constant learning rate without "
                f"warm-up and no loss_scaling of your own: leave out {', '.join(found)}"
            )

    def rate(self, update: int) -> float:
        """Return the learning rate of a weight update, counted from 0."""
        rate = self._schedule()
        if self.warmup_mode:
            warmup = int(self.warmup_epochs * self.updates_per_epoch)
            rate = schedules.warmed(rate, self.warmup_mode, warmup)
        if self.staircase:
            rate = schedules.staircase(rate, self.updates_per_epoch)
        return rate(update)

    def _schedule(self) -> schedules.Rate:
        if self.schedule == "stepped":
            boundaries = [int(epoch * self.updates_per_epoch) for epoch in self.boundaries]
            return schedules.stepped(boundaries, self.values)
        if self.schedule == "cosine":
            return schedules.cosine(self._first_rate, int(self._decay_updates))
        if self.schedule == "polynomial":
            return schedules.polynomial(
                self._first_rate, self._decay_updates, self.end_learning_rate_ratio, self.power
            )
        return schedules.const(self._first_rate)

    @property
    def _first_rate(self) -> float:
        return self.initial_learning_rate * self.global_batch_size

    @property
    def _decay_updates(self) -> float:
        return self.epochs_to_total_decay * self.updates_per_epoch

    def optimiser_for(self, tf: Any, fuse: bool = True) -> Optimiser:
        """Return the optimiser. ``fuse`` is for a host (see Optimiser)."""
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
        decay = default_rmsprop_decay(self.global_batch_size, self.rmsprop_base_decay_exponent)
        return RMSprop(tf, decay=decay, epsilon=self.rmsprop_epsilon, **shared)

    def averages_for(self, tf: Any, variables: Any, fuse: bool = True) -> None:
        """Return None: this application averages no weights."""
        return None

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with each other: never."""
        return False

    def mixup_coefficients(self, tf: Any, batch_size: int, seed: Any) -> None:
        """Return None: images are not mixed."""
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
    ) -> Tuple[Any, Targets]:
        """Return a batch as the network takes it: images of ``dtype``, and what they show.

        ``images`` [N, H, W, C] are pixels, or ``normalised`` already; ``labels`` integers [N];
        ``seed`` int32 [2] decides which images are mirrored, None mirrors none (validation).
        """
        left = "" if normalised else self.preprocess
        return preprocess(tf, images, dtype, left, self.fused, seed), Targets(labels)

    def loss(self, tf: Any, logits: Any, targets: Targets) -> Any:
        """Return the mean cross-entropy, a float32 scalar, without regularisation and scaling.

        Of a label's target ``label_smoothing`` s is spread over all classes: 1 - s + s / classes.
        """
        # cross_entropy spreads over the other classes: s / classes each, too.
        spread = self.label_smoothing * (self.classes - 1) / self.classes
        return cross_entropy(tf, logits, targets.labels, label_smoothing=spread)


def _one_of(option: str, value: str, choices: Tuple[str, ...]) -> None:
    if value not in choices:
        named = ", ".join(choice or "none" for choice in choices)
        raise ValueError(f"{option}={value!r} is not one of {named}")
