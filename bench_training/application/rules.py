"""The rules of the application: contradictory options, and options that others override.

The rules are those of the original program. Its two kinds of error keep their names; both are
ValueErrors.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterator, Tuple, TypeVar

from ipubench.bench_training.application.parameters import GROUPS, check_parameters
from ipubench.fixtures.case.options import IPUS_OF_SYSTEM
from ipubench.fixtures.runtimes.tensorflow.application_options import ApplicationOptions
from ipubench.fixtures.runtimes.tensorflow.ipu.pipelines import check_training, check_validation
from ipubench.models.tensorflow.cnn.blocks import cut_at
from ipubench.models.tensorflow.cnn.named_blocks import norm_channels
from ipubench.models.tensorflow.training.recipe import FLOAT32_MAX

MAX_SEED = 2**31 - 1  # TensorFlow's seeds are int32
MAX_EPOCHS = 10**6
MAX_PREFETCH = 255  # the depth of an IPUInfeedQueue
LARGEST = (("seed", MAX_SEED), ("num_epochs", MAX_EPOCHS), ("prefetch_depth", MAX_PREFETCH))
# The proportions of memory of one stage: for convolutions and for matrix products.
PROPORTIONS_PER_STAGE = 2


class DimensionError(ValueError):
    """Raised when a list does not have the length that another option requires."""


class UnallowedConfigurationError(ValueError):
    """Raised when two options contradict each other."""


def check(config: ApplicationOptions) -> None:
    """Raise ValueError for the first contradiction."""
    if not (config.training or config.validation):
        raise ValueError("training and validation are both off: nothing is left to measure")
    for name, largest in LARGEST:
        if getattr(config, name) > largest:
            raise ValueError(f"{name}={getattr(config, name)} is above the largest, {largest}")
    check_parameters(config)
    _check_group_norm(config)
    _check_pipeline(config)
    _check_preprocessing(config)
    _check_system(config)
    _check_program(config)
    _check_checkpoints(config)
    _check_distribution(config)
    _check_rates(config)


def _check_group_norm(config: ApplicationOptions) -> None:
    norm, group = config.norm_layer, config.dbn_replica_group_size
    if norm["name"] != "group_norm":
        return
    if group > 1:
        raise ValueError(
            f"dbn_replica_group_size={group} is for batch norms, and norm_layer is a group_norm, "
            "which needs no other replica's images: use 1"
        )
    key = next(key for key in GROUPS if norm.get(key))
    every = norm_channels(config.model_name)
    for channels in every:
        if channels % norm[key]:
            raise ValueError(
                f"norm_layer: {key}={norm[key]} does not divide the {channels} channels of a norm "
                f"of {config.model_name}; choose a divisor of {every[0]}"
            )


def _check_rates(config: ApplicationOptions) -> None:
    """Check the given rates: the recipe has them times the global batch."""
    given, size = config.lr_schedule_params, 1
    if config.lr_schedule == "stepped":
        name, rates = "values", given["values"]
    else:
        size = config.batches.global_batch_size
        name, rates = "initial_learning_rate", (given["initial_learning_rate"],)
    for rate in rates:
        if not 0 <= rate * size <= FLOAT32_MAX:
            times = f", times {size} images," if size > 1 else ""
            raise ValueError(
                f"lr_schedule_params: {name}={rate}{times} is not a float32 of 0 or above"
            )


def _check_program(config: ApplicationOptions) -> None:
    images = config.published
    per_epoch = config.batches.updates_per_epoch(images.train_images)
    if not per_epoch and config.weight_updates_per_epoch < 0:
        raise ValueError(
            f"the {images.train_images} images of {config.dataset} are less than a global batch of "
            f"{config.batches.global_batch_size}: choose a smaller one, or set "
            "weight_updates_per_epoch"
        )
    if config.weight_updates_per_epoch == 0:
        raise ValueError("weight_updates_per_epoch=0: give 1 or more, or -1 for the whole data set")
    _ = config.program
    batches = config.validation_batches
    if config.validation and not batches.micro_batches_per_epoch(images.validation_images):
        raise ValueError(
            f"the {images.validation_images} validation images of {config.dataset} are less than a "
            f"batch of {batches.global_batch_size}: choose a smaller validation_micro_batch_size "
            "or fewer validation_num_replicas"
        )


def _check_checkpoints(config: ApplicationOptions) -> None:
    """Raise ValueError for checkpoints of synthetic data on IPUs, which return no variables."""
    kept = f"checkpoint_output_dir={config.checkpoint_output_dir}"
    if not config.checkpoint_output_dir:
        kept = "" if config.clean_dir or not config.ckpts_per_epoch else "clean_dir=False"
    if kept and config.training and config.system != "host" and config.data == "synthetic":
        raise ValueError(
            f"{kept} with data=synthetic: IPUs then do not return trained weights, and the "
            "checkpoints would contain the initial ones; use --data=generated"
        )


def _check_pipeline(config: ApplicationOptions) -> None:
    cut_at(config.network.unit_names, config.pipeline_splits)
    if config.recomputation and not config.pipeline_splits:
        raise ValueError(
            "recomputation needs pipeline_splits: it keeps only the activations between stages"
        )
    mapping, stages = config.device_mapping, config.stages
    if mapping and len(mapping) != stages:
        raise DimensionError(
            f"device_mapping has {len(mapping)} values, and pipeline_splits make {stages} "
            f"stage{'s' if stages > 1 else ''}: give one IPU for each"
        )
    used = sorted(set(mapping))
    if used != list(range(len(used))):
        raise DimensionError(
            f"device_mapping={' '.join(map(str, mapping))}: IPUs are numbered from 0 to the "
            "largest, and each has a stage"
        )
    if config.system != "host" and config.training and stages > 1:
        count = config.batches.gradient_accumulation
        check_training(config.pipeline_schedule, config.stage_ipus, count)
    if config.system != "host" and config.validation and config.pipelines_validation:
        count = config.validation_batches.gradient_accumulation
        check_validation(config.pipeline_schedule, config.stage_ipus, count)
    proportions = config.available_memory_proportion
    if len(proportions) > 1 and stages == 1:
        raise UnallowedConfigurationError(
            f"available_memory_proportion has {len(proportions)} values, and a model without "
            "pipeline_splits takes one"
        )
    if len(proportions) > 1 and len(proportions) != PROPORTIONS_PER_STAGE * stages:
        raise DimensionError(
            f"available_memory_proportion has {len(proportions)} values: give one, or for each of "
            f"the {stages} stages one for convolutions and one for matrix products"
        )
    if any(not 0 < percent <= 100 for percent in proportions):
        raise ValueError("available_memory_proportion: percentages lie above 0 and up to 100")


def _check_preprocessing(config: ApplicationOptions) -> None:
    if config.eight_bit_transfer and not config.accelerator_side_preprocess:
        raise UnallowedConfigurationError(
            "eight_bit_transfer sends integers, which the host cannot normalise: it needs "
            "accelerator_side_preprocess"
        )
    if config.fused_preprocessing and not config.accelerator_side_preprocess:
        raise ValueError(
            "fused_preprocessing is done on the device: it needs accelerator_side_preprocess"
        )
    if config.fused_preprocessing and config.dataset != "imagenet":
        raise ValueError(f"fused_preprocessing is for imagenet, not for {config.dataset}")


def _check_system(config: ApplicationOptions) -> None:
    if config.system == "host":
        _check_host_replicas(config)
    elif config.system != "ipu" and config.ipus != IPUS_OF_SYSTEM[config.system]:
        raise ValueError(
            f"{config.shards} IPUs a replica x replicas={config.replicas} are {config.ipus} IPUs, "
            f"{config.system} has {IPUS_OF_SYSTEM[config.system]}"
        )
    else:
        _check_validation_ipus(config)
    if config.measured_replicas % config.instances:
        phase = "" if config.training else " in validation"
        raise ValueError(
            f"replicas={config.measured_replicas}{phase} do not divide into "
            f"instances={config.instances}"
        )
    if config.system != "host":
        _check_groups(config)


def _check_validation_ipus(config: ApplicationOptions) -> None:
    """Check that validation fits into the IPUs of the case, which are those of its system."""
    copies, shards = config.validation_num_replicas, config.validation_shards
    if config.validation and copies * shards > config.ipus:
        raise ValueError(
            f"validation_num_replicas={copies} x {shards} IPUs a replica in validation are "
            f"{copies * shards} IPUs, and replicas={config.replicas} x {config.shards} are all "
            f"that the case has, {config.ipus}: use {config.ipus // shards} at most, or 0 for "
            "that many"
        )


def _check_groups(config: ApplicationOptions) -> None:
    """Raise ValueError if IPUs form no group, before a phase fails to attach."""
    phases = (
        ("training", config.training, config.ipus, "replicas or stages"),
        ("validation", config.validation, config.validation_ipus, "validation_num_replicas"),
    )
    for phase, runs, ipus, option in phases:
        own = ipus // config.instances
        if runs and own & (own - 1):
            raise ValueError(
                f"{phase} takes {own} IPUs per process, but IPUs come in groups of 1, 2, 4, 8 "
                f"and so on: choose other {option}"
            )


def _check_host_replicas(config: ApplicationOptions) -> None:
    """Check the replicas on a host: each is a process that exchanges gradients."""
    replicas, group = config.replicas, config.dbn_replica_group_size
    if config.instances != 1:
        raise ValueError(
            f"instances={config.instances}: on a host each of the replicas is a separate "
            "process; use replicas"
        )
    if replicas > 1 and not config.training:
        raise ValueError(f"replicas={replicas}: a host validates in one process")
    if group not in (1, replicas):
        raise ValueError(
            f"dbn_replica_group_size={group} with replicas={replicas}: on a host all replicas "
            "share the statistics of a batch norm, or none"
        )
    if group > 1 and config.batches.gradient_accumulation > 1:
        raise ValueError(
            f"dbn_replica_group_size={group} with gradient_accumulation_count="
            f"{config.batches.gradient_accumulation}: a host cannot exchange statistics within "
            "the loop over micro batches"
        )


def _check_distribution(config: ApplicationOptions) -> None:
    group = config.dbn_replica_group_size
    if group > 1 and config.shards != 1:
        raise ValueError(
            f"dbn_replica_group_size={group} needs replicas of one IPU, and these have "
            f"{config.shards}"
        )
    if config.replicas % group:
        raise ValueError(
            f"dbn_replica_group_size={group} does not divide replicas={config.replicas}"
        )
    if config.processes == 1:
        return
    if config.ckpt_all_instances and not config.ckpts_per_epoch:
        raise ValueError("ckpt_all_instances with ckpts_per_epoch=0: there are no checkpoints")
    if config.training and config.validation and config.validation_shards != config.shards:
        raise ValueError(
            f"training and validation by instances={config.processes}: a replica keeps its "
            f"{config.shards} IPUs for the whole run, and validation would take "
            f"{config.validation_shards}; use pipeline_validation_model=true or validation=false"
        )
    copies = config.validation_num_replicas
    if config.training and config.validation and copies not in (0, config.replicas):
        raise ValueError(
            f"validation_num_replicas={copies} with instances={config.processes}: they keep their "
            f"{config.replicas} replicas for the whole run; leave it out"
        )


# ------------------------------------------------------------------ overridden options

Config = TypeVar("Config", bound=ApplicationOptions)


def switched_off(config: ApplicationOptions) -> Iterator[Tuple[str, str]]:
    """Yield the options that others switch off, with the reasons."""
    if config.pipeline_validation_model and not config.pipeline_splits:
        yield "pipeline_validation_model", "there are no pipeline_splits"
    if config.ckpt_all_instances and config.processes == 1:
        yield "ckpt_all_instances", "there is one instance"
    if config.accelerator_side_reduction and config.processes == 1:
        reason = "a single instance has nothing to reduce"
        yield "accelerator_side_reduction", reason
    if config.compile_only and config.on_demand:
        yield "on_demand", "compile_only attaches no IPU"
    if config.deterministic and config.shuffle and config.training:
        yield "shuffle", "deterministic is set"


def settled(config: Config) -> Config:
    """Return the configuration without the options that others switch off."""
    values: Dict[str, Any] = {name: False for name, _ in switched_off(config)}
    return dataclasses.replace(config, **values)
