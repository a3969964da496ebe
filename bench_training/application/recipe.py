"""From the application's options to how its weights are trained."""

from __future__ import annotations

from typing import Dict

from ipubench.fixtures.data.options import DATASETS
from ipubench.fixtures.runtimes.tensorflow.application_options import ApplicationOptions
from ipubench.models.tensorflow.training.application import ApplicationRecipe
from ipubench.models.tensorflow.training.application_schedules import LearningRate

# What an optimiser's parameters are called in a recipe.
LARS = {"weight_decay": "lars_weight_decay", "eeta": "lars_eeta", "epsilon": "lars_epsilon"}
RMSPROP = {"base_decay_exponent": "rmsprop_base_decay_exponent", "epsilon": "rmsprop_epsilon"}
RENAMED: Dict[str, Dict[str, str]] = {"sgd": {}, "lars": LARS, "rmsprop": RMSPROP}


def recipe_of(config: ApplicationOptions) -> ApplicationRecipe:
    """Return the recipe of a configuration whose parameters were checked."""
    renamed = RENAMED[config.optimizer]
    parameters = {renamed.get(key, key): value for key, value in config.optimizer_params.items()}
    rate = LearningRate(
        global_batch_size=config.batches.global_batch_size,
        updates_per_epoch=config.program.updates_per_epoch,
        schedule=config.lr_schedule,
        staircase=config.lr_staircase,
        **config.lr_schedule_params,
        **config.lr_warmup_params,
    )
    return ApplicationRecipe(
        learning_rate=rate,
        epochs=config.num_epochs,
        classes=config.classes,
        optimizer=config.optimizer,
        weight_decay=config.weight_decay,
        l2_regularization=config.l2_regularization,
        # As in the original, for the sum of so many replicas' gradients.
        loss_scaling=config.loss_scaling * config.replicas,
        auto_loss_scaling=config.auto_loss_scaling,
        label_smoothing=config.label_smoothing,
        gradient_accumulation=config.batches.gradient_accumulation,
        preprocess=(
            DATASETS[config.dataset].preprocess if config.accelerator_side_preprocess else ""
        ),
        fused=config.fused_preprocessing,
        seed=config.seed,
        **parameters,
    )
