"""The options of the application without effect in a configuration.

The command line refuses to change them. Presets may contain them, because presets cover all phases.
"""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

from ipubench.fixtures.data.tfds.feed import PREPARED_DATASETS
from ipubench.fixtures.runtimes.tensorflow.application_options import ApplicationOptions
from ipubench.models.tensorflow.cnn.named_blocks import norm_channels

#: Options that only training uses.
OF_TRAINING = (
    *("gradient_accumulation_count", "global_batch_size", "num_epochs"),
    *("weight_updates_per_epoch", "logs_per_epoch", "ckpts_per_epoch", "first_ckpt_epoch"),
    *("checkpoint_output_dir", "ckpt_all_instances", "clean_dir", "shuffle"),
    *("optimizer", "optimizer_params", "loss_scaling", "auto_loss_scaling", "weight_decay"),
    *("l2_regularization", "label_smoothing"),
    *("lr_schedule", "lr_schedule_params", "lr_warmup_params", "lr_staircase"),
    *("dbn_replica_group_size", "recomputation", "optimizer_state_offloading"),
    *("stochastic_rounding", "accelerator_side_reduction"),
)
#: Options that only validation uses.
OF_VALIDATION = (
    "validation_micro_batch_size",
    "validation_num_replicas",
    "pipeline_validation_model",
)
OF_CHECKPOINTS = ("first_ckpt_epoch", "ckpt_all_instances", "clean_dir")


def idle_options(config: ApplicationOptions) -> Dict[str, str]:
    """Return the options without effect, with the reasons."""
    found: Dict[str, str] = {}
    for names, reason in _groups(config):
        for name in names:
            found.setdefault(name, reason)
    return found


def _groups(config: ApplicationOptions) -> Iterator[Tuple[Tuple[str, ...], str]]:
    if not config.training:
        yield OF_TRAINING, "it needs training=true"
        if config.validation_micro_batch_size:
            yield (
                ("micro_batch_size",),
                "validation_micro_batch_size is set, and nothing is trained",
            )
    # After training with synthetic data on IPUs there is no validation: IPUs return nothing.
    unseen = config.training and config.system != "host" and config.data == "synthetic"
    if not config.validation:
        yield OF_VALIDATION, "it needs validation=true"
    elif unseen:
        # Not the pipeline: instances need it, or validation=false.
        yield (
            OF_VALIDATION[:2],
            "with synthetic data the IPUs return nothing that could be validated",
        )
    if not config.ckpts_per_epoch:
        yield OF_CHECKPOINTS, "with ckpts_per_epoch=0 there are no checkpoints"
    elif config.checkpoint_output_dir and not config.validation:
        yield ("clean_dir",), "checkpoints in checkpoint_output_dir that are not validated are kept"
    if not (config.pipeline_splits and (config.training or config.pipelines_validation)):
        yield ("pipeline_schedule",), "it needs a pipeline, and the measured phase has one stage"
    if not norm_channels(config.model_name):
        yield ("norm_layer", "dbn_replica_group_size"), f"{config.model_name} has no norms"
    if config.lr_schedule == "const" and not config.lr_warmup_params:
        yield ("lr_staircase",), "the rate is the same throughout"
    prepared = config.data == "real" and config.dataset in PREPARED_DATASETS
    if prepared and not (config.training and config.shuffle):
        yield (
            ("deterministic",),
            f"unshuffled images of {config.dataset} always have the same order",
        )
