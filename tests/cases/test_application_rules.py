"""The application's rules: what contradicts itself is refused, what gives way is named."""

from __future__ import annotations

import dataclasses
import math
import resource
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.rules import (
    DimensionError,
    UnallowedConfigurationError,
    settled,
)
from ipubench.bench_training.bench_application import HOST, IPU, POD4, POD16
from ipubench.fixtures.case.options import option_types
from ipubench.fixtures.case.values import Parameters
from ipubench.plugins.command_line.set_option import convert

HOST_8K = HOST["resnet50_16ipus_8k_bn_pipeline"]
RESNET8 = HOST["resnet8_test"]
POD16_8K = POD16["resnet50_16ipus_8k_bn_pipeline"]
BS20 = POD16["resnet50_mlperf_pod16_bs20"]
SPLITS = POD16_8K.pipeline_splits
PLAIN = ValueError
RULES: List[Tuple[Application, Dict[str, Any], type, str]] = [
    (HOST_8K, {"recomputation": True}, PLAIN, "recomputation needs pipeline_splits"),
    (RESNET8, {"logs_per_epoch": Fraction(-1)}, PLAIN, "logs_per_epoch=-1 is below 0"),
    (RESNET8, {"ckpts_per_epoch": Fraction(-1)}, PLAIN, "ckpts_per_epoch=-1 is below 0"),
    (RESNET8, {"first_ckpt_epoch": Fraction(-1)}, PLAIN, "first_ckpt_epoch=-1 is below 0"),
    (
        RESNET8,
        {"logs_per_epoch": Fraction(1, 2), "num_epochs": 5},
        PLAIN,
        "2.0 epochs a time for 5 epochs",
    ),
    (POD16_8K, {"device_mapping": (0, 1)}, DimensionError, "has 2 values, .* make 4 stages"),
    (POD16_8K, {"device_mapping": (0, 1, 3, 3)}, DimensionError, "=0 1 3 3: IPUs are numbered"),
    (POD16_8K, {"device_mapping": (0, 1, -1, 2)}, DimensionError, "IPUs are numbered from 0"),
    (
        HOST_8K,
        {"accelerator_side_preprocess": False},
        UnallowedConfigurationError,
        "eight_bit_transfer .* needs accelerator_side_preprocess",
    ),
    (
        RESNET8,
        {"available_memory_proportion": (15.0, 10.0)},
        UnallowedConfigurationError,
        "has 2 values, and a model without pipeline_splits takes one",
    ),
    (
        POD16_8K,
        {"available_memory_proportion": (15.0, 10.0)},
        DimensionError,
        "has 2 values: give one, or for each of the 4 stages",
    ),
    (POD16_8K, {"available_memory_proportion": (0.0,)}, PLAIN, "percentages lie above 0"),
    (
        BS20,
        {"instances": 16, "ckpt_all_instances": True, "ckpts_per_epoch": Fraction(0)},
        PLAIN,
        "ckpt_all_instances with ckpts_per_epoch=0",
    ),
    (POD16_8K, {"dbn_replica_group_size": 2}, PLAIN, "needs replicas of one IPU, .* have 4"),
    (BS20, {"dbn_replica_group_size": 3}, PLAIN, "3 does not divide replicas=16"),
    (
        RESNET8,
        {"fused_preprocessing": True},
        PLAIN,
        "fused_preprocessing .* needs accelerator_side_preprocess",
    ),
    (
        RESNET8,
        {"norm_layer": Parameters({"name": "groupnorm"})},
        PLAIN,
        "'groupnorm' is not one of .*; did you mean group_norm",
    ),
    (
        POD16_8K,
        {"pipeline_splits": ("conv2_block2_ou", *SPLITS[1:])},
        PLAIN,
        "'conv2_block2_ou' does not exist; did you mean conv2_block2_out(.|\n)*conv5_block3_out",
    ),
    (POD16_8K, {"pipeline_splits": SPLITS[::-1]}, PLAIN, "comes too late"),
    (RESNET8, {"auto_loss_scaling": True, "optimizer": "lars"}, PLAIN, "auto_loss_scaling"),
    (
        RESNET8,
        {"auto_loss_scaling": True, "optimizer_params": Parameters({"momentum": 0.9})},
        PLAIN,
        "auto_loss_scaling .* momentum",
    ),
    (
        RESNET8,
        {"auto_loss_scaling": True, "optimizer_params": Parameters({"eeta": 0.1})},
        PLAIN,
        "there is no 'eeta'; it has momentum",
    ),
    (
        RESNET8,
        {
            "auto_loss_scaling": True,
            "lr_schedule": "cosine",
            "lr_schedule_params": Parameters(
                {"initial_learning_rate": 0.1, "epochs_to_total_decay": 5}
            ),
        },
        PLAIN,
        "auto_loss_scaling .* cosine",
    ),
    (
        RESNET8,
        {
            "auto_loss_scaling": True,
            "lr_schedule_params": Parameters({"initial_learning_rate": 0.1, "power": 2}),
        },
        PLAIN,
        "there is no 'power'",
    ),
    (
        RESNET8,
        {
            "auto_loss_scaling": True,
            "lr_warmup_params": Parameters({"warmup_mode": "mask", "warmup_epochs": 1}),
        },
        PLAIN,
        "auto_loss_scaling .* warm-up",
    ),
    (
        POD16_8K,
        {"instances": 4},
        PLAIN,
        "training and validation by instances=4: .* 4 IPUs .* pipeline_validation_model=true",
    ),
    (
        IPU["resnet8_test_lars"],
        {"replicas": 4, "instances": 2, "validation_num_replicas": 2},
        PLAIN,
        "validation_num_replicas=2 with instances=2: they keep their 4 replicas",
    ),
    (
        POD16_8K,
        {"instances": 5, "training": False},
        PLAIN,
        "replicas=16 in validation do not divide into instances=5",
    ),
    (
        RESNET8,
        {"validation_micro_batch_size": 10001},
        PLAIN,
        "10000 validation images of cifar10 are no whole batch of 10001",
    ),
    (
        RESNET8,
        {"global_batch_size": 64},
        PLAIN,
        "gradient_accumulation_count=2 and global_batch_size=64 .* give one",
    ),
    (RESNET8, {"training": False, "validation": False}, PLAIN, "nothing is left to measure"),
    (RESNET8, {"weight_updates_per_epoch": 0}, PLAIN, "give 1 or more, or -1"),
    (
        RESNET8,
        {"weight_updates_per_epoch": -1, "micro_batch_size": 50001},
        PLAIN,
        "50000 images of cifar10 are no whole global batch of 100002",
    ),
    (RESNET8, {"replicas": 2, "instances": 2}, PLAIN, "instances=2: on a host each of the repli"),
    (IPU["resnet8_test"], {"replicas": 3}, PLAIN, "training takes 3 IPUs of a process, .* groups"),
    (POD16_8K, {"validation_num_replicas": 6}, PLAIN, "validation takes 6 .* validation_num_repli"),
    (RESNET8, {"replicas": 2, "training": False}, PLAIN, "a host validates in one process"),
    (
        RESNET8,
        {"replicas": 4, "dbn_replica_group_size": 2},
        PLAIN,
        "dbn_replica_group_size=2 with replicas=4: .* share the statistics of a batch norm",
    ),
    (
        RESNET8,
        {"replicas": 2, "dbn_replica_group_size": 2, "gradient_accumulation_count": 2},
        PLAIN,
        "a host cannot exchange statistics within the loop over micro batches",
    ),
    (POD16_8K, {"replicas": 2}, PLAIN, "are 8 IPUs, pod16 has 16"),
    (
        RESNET8,
        {"lr_schedule": "cosine"},
        PLAIN,
        "lr_schedule_params with lr_schedule=cosine: it also needs epochs_to_total_decay",
    ),
    (
        RESNET8,
        {"lr_warmup_params": Parameters({"warmup_mode": "shft", "warmup_epochs": 1})},
        PLAIN,
        "'shft' is not one of shift, mask; did you mean shift",
    ),
    (
        RESNET8,
        {"optimizer_params": Parameters({"momentun": 0.9})},
        PLAIN,
        "there is no 'momentun'; did you mean momentum",
    ),
    (
        RESNET8,
        {"optimizer_params": Parameters({"momentum": "0.9"})},
        PLAIN,
        "momentum is '0.9', not a number",
    ),
    (
        RESNET8,
        {"lr_warmup_params": Parameters({"warmup_mode": "mask", "warmup_epochs": 1e308})},
        PLAIN,
        "^lr_warmup_params: warmup_epochs is 1e.308, not a number that float32 holds",
    ),
    (
        RESNET8,
        {
            "lr_schedule": "stepped",
            "lr_schedule_params": Parameters({"boundaries": [math.nan], "values": [0.1, 0.2]}),
        },
        PLAIN,
        "lr_schedule=stepped: boundaries is .nan,., not a list of numbers that float32 holds",
    ),
    (
        RESNET8,
        {"optimizer": "lars", "optimizer_params": Parameters({"eeta": -0.1})},
        PLAIN,
        "^optimizer_params: eeta=-0.1 is not 0 or above",
    ),
    (
        RESNET8,
        {"norm_layer": Parameters({"name": "group_norm"})},
        PLAIN,
        "either num_groups or channels_per_group",
    ),
    (
        RESNET8,
        {"norm_layer": Parameters({"name": "group_norm", "num_groups": -4})},
        PLAIN,
        "either num_groups or channels_per_group, above 0",
    ),
    (
        RESNET8,
        {"norm_layer": Parameters({"name": "group_norm", "num_groups": 3})},
        PLAIN,
        "^norm_layer: num_groups=3 does not divide the 16 channels .* a divisor of 16",
    ),
    (
        RESNET8,
        {"norm_layer": Parameters({"name": "batch_norm", "momentum": 1.5})},
        PLAIN,
        "^norm_layer: momentum=1.5 is not 0 or above, and below 1",
    ),
    (
        BS20,
        {"norm_layer": Parameters({"name": "group_norm", "num_groups": 4})},
        PLAIN,
        "^dbn_replica_group_size=2 is of batch norms, .* use 1",
    ),
    (
        RESNET8,
        {"lr_schedule_params": Parameters({"initial_learning_rate": -1})},
        PLAIN,
        "^lr_schedule_params: initial_learning_rate=-1, times 16 images, is not a float32 of 0 or",
    ),
    (
        RESNET8,
        {
            "lr_schedule": "stepped",
            "lr_schedule_params": Parameters({"boundaries": [1], "values": [1, -0.5]}),
        },
        PLAIN,
        "^lr_schedule_params: values=-0.5 is not a float32 of 0 or above",
    ),
    (
        RESNET8,
        {"optimizer": "lars", "optimizer_params": Parameters({"weight_decay": -1})},
        PLAIN,
        "^optimizer_params: weight_decay=-1 is not 0 or above",
    ),
    (
        POD4["resnet50_mlperf_pod4_bs20"],
        {"validation_num_replicas": 8},
        PLAIN,
        "^validation_num_replicas=8 x 1 IPUs .* are 8 IPUs, .* all that the case has, 4: use 4 at",
    ),
    (
        IPU["resnet8_test_lars"],
        {"validation_num_replicas": 3},
        PLAIN,
        "the case has, 1: use 1 at most",
    ),
    (
        IPU["resnet50_infer_bs16"],
        {"validation_num_replicas": 2},
        PLAIN,
        "the case has, 1: use 1 at most",
    ),
    (
        POD16_8K,
        {"pipeline_validation_model": True, "validation_num_replicas": 5},
        PLAIN,
        "=5 x 4 IPUs a replica in validation are 20 IPUs, .* has, 16: use 4 at most",
    ),
    (RESNET8, {"optimizer": "rmsprop", "weight_decay": 0.1}, PLAIN, "weight_decay=0.1 .* sgd only"),
    (RESNET8, {"prefetch_depth": 256}, PLAIN, "^prefetch_depth=256 is above the largest, 255"),
    (
        IPU["resnet8_test"],
        {"data": "synthetic", "checkpoint_output_dir": "here"},
        PLAIN,
        "^checkpoint_output_dir=here with data=synthetic: .* use --data=generated",
    ),
    (
        IPU["resnet8_test"],
        {"data": "synthetic", "clean_dir": False},
        PLAIN,
        "^clean_dir=False with data=synthetic: .* use --data=generated",
    ),
]


@pytest.mark.parametrize(
    ("config", "changes", "kind", "message"),
    RULES,
    ids=[f"{number}-{'-'.join(changes)}" for number, (_, changes, _, _) in enumerate(RULES)],
)
def test_what_contradicts_itself_is_refused(
    config: Application, changes: Dict[str, Any], kind: type, message: str
) -> None:
    config.check()
    with pytest.raises(ValueError, match=message) as caught:
        dataclasses.replace(config, **changes).check()
    assert type(caught.value) is kind


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: run it there")
def test_an_ipu_of_a_large_number_is_refused_without_counting_up_to_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 28), hard))
    try:
        with pytest.raises(DimensionError, match="IPUs are numbered from 0"):
            dataclasses.replace(RESNET8, device_mapping=(10**11,)).check()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_what_the_rules_allow() -> None:
    """The same options where they fit together."""
    dataclasses.replace(HOST_8K, pipeline_splits=SPLITS, recomputation=True).check()
    eight = tuple(float(value) for value in range(10, 18))
    dataclasses.replace(POD16_8K, available_memory_proportion=eight).check()
    dataclasses.replace(POD16_8K, instances=4, pipeline_validation_model=True).check()
    dataclasses.replace(POD16_8K, instances=4, validation=False).check()
    dataclasses.replace(POD16_8K, instances=8, training=False).check()
    dataclasses.replace(POD16_8K, validation_num_replicas=16).check()
    dataclasses.replace(IPU["resnet8_test_lars"], replicas=4, validation_num_replicas=2).check()
    dataclasses.replace(BS20, instances=16, ckpt_all_instances=True).check()
    dataclasses.replace(RESNET8, auto_loss_scaling=True).check()
    dataclasses.replace(IPU["resnet8_test"], prefetch_depth=255).check()
    kept: Dict[str, Any] = {"checkpoint_output_dir": "here", "clean_dir": False}
    dataclasses.replace(RESNET8, data="synthetic", **kept).check()
    dataclasses.replace(IPU["resnet8_test"], data="generated", **kept).check()
    validated = IPU["resnet50_infer_bs16"]
    dataclasses.replace(validated, data="synthetic", checkpoint_input_dir="here").check()
    dataclasses.replace(RESNET8, logs_per_epoch=Fraction(1, 5), num_epochs=5).check()
    dataclasses.replace(RESNET8, global_batch_size=64, gradient_accumulation_count=0).check()


@pytest.mark.parametrize(
    ("config", "changes", "overruled", "message"),
    [
        (
            RESNET8,
            {"pipeline_validation_model": True},
            {"pipeline_validation_model": False},
            "pipeline_validation_model is off: there are no pipeline_splits",
        ),
        (
            RESNET8,
            {"ckpt_all_instances": True},
            {"ckpt_all_instances": False},
            "ckpt_all_instances is off: there is one instance",
        ),
        (
            RESNET8,
            {"accelerator_side_reduction": True},
            {"accelerator_side_reduction": False},
            "accelerator_side_reduction is off: there is one instance",
        ),
        (
            RESNET8,
            {"compile_only": True},
            {"on_demand": False},
            "on_demand is off: compile_only attaches no IPU",
        ),
        (
            RESNET8,
            {"deterministic": True},
            {"shuffle": False},
            "shuffle is off: deterministic was asked for",
        ),
    ],
)
def test_what_gives_way_is_named(
    config: Application, changes: Dict[str, Any], overruled: Dict[str, Any], message: str
) -> None:
    assert settled(config) == config
    asked = dataclasses.replace(config, **changes)
    asked.check()
    (warning,) = asked.warnings
    assert warning.startswith(message)
    assert settled(asked) == dataclasses.replace(asked, **overruled)


def test_a_case_warns_of_batches_and_events() -> None:
    asked = dataclasses.replace(
        RESNET8,
        gradient_accumulation_count=0,
        global_batch_size=20,
        weight_updates_per_epoch=-1,
        logs_per_epoch=Fraction(10),
    )
    batches, logs, ckpts = asked.warnings[0], asked.warnings[1], asked.warnings[2:]
    assert "it is 16" in batches
    assert "logs_per_epoch=10: 3125 weight updates" in logs
    assert not ckpts
    assert dataclasses.replace(asked, training=False).warnings == ()


NUMBERS = [
    name for name, kind in option_types(Application).items() if kind in (int, float, Fraction)
]
WORDS = ["0", "1", "-1", "7", "2000", str(2**62), "1e9", "0.5", "1/3", "1e-30"]


@given(st.data())
def test_any_number_is_accepted_or_refused_in_words(data: st.DataObject) -> None:
    """A traceback at collection would tell a user nothing, nor would a search without end."""
    config = data.draw(st.sampled_from([RESNET8, HOST_8K, POD16_8K, BS20]))
    for name in data.draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3)):
        text = data.draw(st.sampled_from(WORDS))
        try:
            config = dataclasses.replace(config, **{name: convert(Application, name, text)})
        except ValueError:
            continue
    try:
        config.check()
    except ValueError as error:
        assert str(error)
    else:
        assert config.program.calls * config.updates_per_call == config.program.total_updates
