"""The options of the application: names, defaults and meanings.

Names are those of the original program's command line. Where it has "none", an option here is 0 or
empty and its help says what that means.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Tuple

from ipubench.bench_training.application.datasets import DATASETS
from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.fixtures.case.values import Parameters
from ipubench.models.tensorflow.cnn.named import MODEL_NAMES

OPTIMIZERS = ("sgd", "lars", "rmsprop")
SCHEDULES = ("const", "cosine", "stepped", "polynomial")


@dataclass(frozen=True)
class ApplicationOptions(CaseConfig):
    """What the command line of the application says."""

    calibrated = False  # the device calls follow from the logs and checkpoints

    # What runs, on which data.
    mode: str = option("training", "what is measured", choices=("training", "inference"))
    data: str = option("real", "synthetic, generated or real images")
    batches_per_step: int = option(
        0, "most weight updates of a device call; 0: up to the next log or checkpoint", minimum=0
    )
    training: bool = option(True, "train")
    validation: bool = option(
        True, "validate: after training its checkpoints; without training this is measured"
    )
    model_name: str = option("toy_model", "network", choices=MODEL_NAMES)
    dataset: str = option("cifar10", "what the images are", choices=tuple(DATASETS))
    seed: int = option(0, "of initial weights, shuffling and augmentation", minimum=0)
    shuffle: bool = option(True, "training images come in random order")
    deterministic: bool = option(False, "images come in the same order in each run, not shuffled")
    eight_bit_transfer: bool = option(False, "images travel to the device as uint8")
    accelerator_side_preprocess: bool = option(
        False, "images are normalised, and those of CIFAR flipped, on the device"
    )
    fused_preprocessing: bool = option(
        False, "ImageNet is normalised by one operation on the device"
    )
    pipeline_num_parallel: int = option(48, "images that the host prepares at a time", minimum=1)
    prefetch_depth: int = option(
        1, "batches that an IPU's data stream holds ready", minimum=1, ipu_only=True
    )

    # Batches, and when the device returns to the host.
    micro_batch_size: int = option(1, "images per device step and replica", minimum=1)
    gradient_accumulation_count: int = option(
        0, "micro batches per weight update; 0: by global_batch_size, or 1", minimum=0
    )
    global_batch_size: int = option(
        0, "images per weight update; 0: by gradient_accumulation_count", minimum=0
    )
    replicas: int = option(1, "data-parallel copies of the model, of all instances", minimum=1)
    instances: int = option(1, "processes that share the replicas", minimum=1)
    num_epochs: int = option(1, "length of training and of its schedule", minimum=1)
    weight_updates_per_epoch: int = option(
        -1, "weight updates that count as an epoch; -1: as many as the data set has", minimum=-1
    )
    logs_per_epoch: Fraction = option(
        Fraction(1), "lines in the training log, as in 2 or 1/2; 0: none", minimum=0
    )
    ckpts_per_epoch: Fraction = option(
        Fraction(1), "checkpoints of the weights, as in 2 or 1/2; 0: none", minimum=0
    )
    first_ckpt_epoch: Fraction = option(
        Fraction(0), "epoch of the first checkpoint; 0: after one period", minimum=0
    )
    checkpoint_input_dir: str = option(
        "", "folder of checkpoints to go on training from, or to validate"
    )
    checkpoint_output_dir: str = option(
        "", "folder to save checkpoints in; empty: a temporary one of the run"
    )
    ckpt_all_instances: bool = option(False, "each instance saves its checkpoints, not the first")
    clean_dir: bool = option(
        True,
        "delete the run's checkpoints once they are validated, those in checkpoint_output_dir too; "
        "validation=false with that folder keeps them as well",
    )
    validation_micro_batch_size: int = option(
        0, "images per device step in validation; 0: as in training", minimum=0
    )
    validation_num_replicas: int = option(
        0,
        "copies of the model in validation; 0: one on each IPU of training",
        minimum=0,
        needs_ipu=True,
    )
    pipeline_validation_model: bool = option(
        False, "validation is split into the stages of training", ipu_only=True
    )

    # How the weights are trained.
    optimizer: str = option("sgd", "what updates the weights", choices=OPTIMIZERS)
    optimizer_params: Parameters = option(
        Parameters({"momentum": 0}), "momentum; lars, rmsprop: more (docs/reference/application.md)"
    )
    loss_scaling: float = option(
        0.0, "factor of the loss that gradients are divided by, times replicas; 0: off", minimum=0.0
    )
    auto_loss_scaling: bool = option(False, "the loss scale follows the gradients' size")
    weight_decay: float = option(
        0.0, "sgd: share of the weights that each update takes off", minimum=0.0
    )
    l2_regularization: float = option(
        0.0, "share of the weights that is added to gradients", minimum=0.0
    )
    label_smoothing: float = option(0.0, "share of the label's mass on all classes", minimum=0.0)
    lr_schedule: str = option("const", "how the rate falls", choices=SCHEDULES)
    lr_schedule_params: Parameters = option(
        Parameters({"initial_learning_rate": 0.0001}),
        "initial_learning_rate per image of the global batch, and more by schedule",
    )
    lr_warmup_params: Parameters = option(
        Parameters({}), "warmup_mode (shift or mask) and warmup_epochs; empty: no warm-up"
    )
    lr_staircase: bool = option(False, "the rate changes once an epoch")
    norm_layer: Parameters = option(
        Parameters({"name": "custom_batch_norm", "momentum": 0.97}),
        "name (batch_norm, custom_batch_norm or group_norm), and momentum, or num_groups "
        "or channels_per_group",
    )
    dbn_replica_group_size: int = option(
        1, "replicas that share the statistics of a batch norm", minimum=1
    )

    # How IPUs run it.
    pipeline_splits: Tuple[str, ...] = option(
        (), "layers that start the next stage, as in conv2_block2_out", ipu_only=True
    )
    device_mapping: Tuple[int, ...] = option(
        (), "IPU of each pipeline stage, from 0; empty: one IPU each", ipu_only=True
    )
    pipeline_schedule: str = option(
        "Grouped",
        "order of forward and backward stages",
        choices=("Grouped", "Interleaved", "Sequential"),
        ipu_only=True,
    )
    recomputation: bool = option(False, "keep few activations and compute the others again")
    accelerator_side_reduction: bool = option(
        False, "instances: loss and accuracy are averaged on the IPUs", ipu_only=True
    )
    stochastic_rounding: str = option(
        "ON",
        "of float16 in training; RI: the same in all replicas",
        choices=("ON", "OFF", "RI"),
        ipu_only=True,
    )
    optimizer_state_offloading: bool = option(
        True, "the optimiser's state stays in the host's memory", ipu_only=True
    )
    fp_exceptions: bool = option(False, "stop at overflow and invalid numbers", ipu_only=True)
    nanoo: bool = option(False, "overflow of float16 gives NaN", ipu_only=True)
    half_partials: bool = option(False, "sum partial results in float16", ipu_only=True)
    internal_exchange_optimization_target: str = option(
        "none",
        "what the exchange between tiles is optimised for",
        choices=("none", "cycles", "memory", "balanced"),
        ipu_only=True,
    )
    max_cross_replica_buffer_size: int = option(
        0, "bytes that replicas exchange together", minimum=0, ipu_only=True
    )
    max_reduce_many_buffer_size: int = option(
        0, "bytes of reductions that are done together", minimum=0, ipu_only=True
    )
    conv_dithering: bool = option(False, "convolutions start on different tiles", ipu_only=True)
    gather_conv_output: bool = option(
        False, "partial results of convolutions are gathered before they are summed", ipu_only=True
    )
    stable_norm: bool = option(
        False, "norms subtract the mean before they square; a host always does", ipu_only=True
    )
    min_remote_tensor_size: int = option(
        128, "bytes from which state is kept in the host's memory", minimum=0, ipu_only=True
    )
    available_memory_proportion: Tuple[float, ...] = option(
        (),
        "PERCENT of memory (15 is 0.15): one value, or for each stage those of convolutions and "
        "matrix products",
        ipu_only=True,
    )
    scheduling_algorithm: str = option(
        "CHOOSE_BEST",
        "how the compiler orders operations",
        choices=("CHOOSE_BEST", "CLUSTERING", "POST_ORDER", "LOOK_AHEAD", "SHORTEST_PATH"),
        ipu_only=True,
    )
    on_demand: bool = option(True, "IPUs are attached when the program is loaded", ipu_only=True)
    compile_only: bool = option(False, "compile, and neither run nor measure")
