"""The application's rules: contradictions are refused, and options that yield are named."""

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
LARS8 = IPU["resnet8_test_lars"]


def P(**values: Any) -> Parameters:
    return Parameters(values)


def steps(boundaries: List[float], values: List[float]) -> Dict[str, Parameters]:
    return {"lr_schedule_params": P(boundaries=boundaries, values=values)}


NO_CKPTS = {"ckpts_per_epoch": Fraction(0)}
ACCUMULATED = {"gradient_accumulation_count": 2}
SYNTHETIC = {"data": "synthetic"}
WARMUP = P(warmup_mode="mask", warmup_epochs=1)
DECAY = {"lr_schedule_params": P(initial_learning_rate=0.1, epochs_to_total_decay=5)}
LARS = {"optimizer": "lars"}
STEPPED = {"lr_schedule": "stepped"}
SCALED = {"auto_loss_scaling": True}
RATE = "initial_learning_rate"
RULES: List[Tuple[Application, Dict[str, Any], str]] = [
    (HOST_8K, {"recomputation": True}, "recomputation needs pipeline_splits"),
    (RESNET8, {"logs_per_epoch": Fraction(1, 2), "num_epochs": 5}, "2.0 epochs a time for 5"),
    (POD16_8K, {"available_memory_proportion": (0.0,)}, "percentages lie above 0"),
    (BS20, {"instances": 16, "ckpt_all_instances": True, **NO_CKPTS}, "ckpts_per_epoch=0"),
    (POD16_8K, {"dbn_replica_group_size": 2}, "needs replicas of one IPU, .* have 4"),
    (BS20, {"dbn_replica_group_size": 3}, "3 does not divide replicas=16"),
    (BS20, {"norm_layer": P(name="group_norm", num_groups=4)}, "^dbn_replica_group_size=2"),
    (RESNET8, {"fused_preprocessing": True}, "needs accelerator_side_preprocess"),
    (POD16_8K, {"pipeline_splits": ("conv2_bloc", *SPLITS[1:])}, r"'conv2_bloc'[^$]*conv5_block3"),
    (POD16_8K, {"pipeline_splits": SPLITS[::-1]}, "comes too late"),
    (RESNET8, {**SCALED, **LARS}, "auto_loss_scaling"),
    (RESNET8, {**SCALED, "optimizer_params": P(momentum=0.9)}, "auto_loss_scaling .* momentum"),
    (RESNET8, {**SCALED, "lr_schedule": "cosine", **DECAY}, "auto_loss_scaling .* cosine"),
    (RESNET8, {**SCALED, "lr_warmup_params": WARMUP}, "auto_loss_scaling .* warm-up"),
    (POD16_8K, {"instances": 4}, "instances=4: .* 4 IPUs .* pipeline_validation_model=true"),
    (LARS8, {"replicas": 4, "instances": 2, "validation_num_replicas": 2}, "with instances=2: "),
    (POD16_8K, {"instances": 5, "training": False}, "replicas=16 .* instances=5"),
    (RESNET8, {"validation_micro_batch_size": 10001}, "10000 validation images of cifar10"),
    (RESNET8, {"global_batch_size": 64}, "gradient_accumulation_count=2 .*global_batch_size=64"),
    (RESNET8, {"training": False, "validation": False}, "nothing is left to measure"),
    (RESNET8, {"weight_updates_per_epoch": 0}, "give 1 or more, or -1"),
    (
        RESNET8,
        {"weight_updates_per_epoch": -1, "micro_batch_size": 50001},
        "50000 .*batch of 100002",
    ),
    (RESNET8, {"replicas": 2, "instances": 2}, "instances=2: on a host"),
    (IPU["resnet8_test"], {"replicas": 3}, "training takes 3 IPUs .* groups"),
    (POD16_8K, {"validation_num_replicas": 6}, "validation takes 6 .* validation_num_repli"),
    (RESNET8, {"replicas": 2, "training": False}, "a host validates in one process"),
    (
        RESNET8,
        {"replicas": 4, "dbn_replica_group_size": 2},
        "dbn_replica_group_size=2 .*replicas=4",
    ),
    (RESNET8, {"replicas": 2, "dbn_replica_group_size": 2, **ACCUMULATED}, "micro batches"),
    (POD16_8K, {"replicas": 2}, "are 8 IPUs, pod16 has 16"),
    (RESNET8, {"lr_schedule": "cosine"}, "lr_schedule=cosine: .* epochs_to_total_decay"),
    (RESNET8, {"lr_schedule_params": P(power=2, **{RATE: 0.1})}, "there is no 'power'"),
    (RESNET8, {"lr_schedule_params": P(**{RATE: -1})}, f"^lr_schedule_params: {RATE}=-1"),
    (RESNET8, {**STEPPED, **steps([math.nan], [0.1, 0.2])}, "boundaries is .nan"),
    (RESNET8, {**STEPPED, **steps([1], [1, -0.5])}, "^lr_schedule_params: values=-0.5"),
    (RESNET8, {"lr_warmup_params": P(warmup_mode="shft", warmup_epochs=1)}, "did you mean shift"),
    (
        RESNET8,
        {"lr_warmup_params": P(warmup_mode="mask", warmup_epochs=1e308)},
        "^lr_warmup_params",
    ),
    (RESNET8, {"optimizer_params": P(momentun=0.9)}, "'momentun'; did you mean momentum"),
    (RESNET8, {"optimizer_params": P(momentum="0.9")}, "momentum is '0.9', not a number"),
    (RESNET8, {**LARS, "optimizer_params": P(eeta=-0.1)}, "^optimizer_params: eeta=-0.1"),
    (
        RESNET8,
        {**LARS, "optimizer_params": P(weight_decay=-1)},
        "^optimizer_params: weight_decay=-1",
    ),
    (RESNET8, {"norm_layer": P(name="groupnorm")}, "'groupnorm' .*; did you mean group_norm"),
    (RESNET8, {"norm_layer": P(name="group_norm")}, "either num_groups or channels_per_group"),
    (RESNET8, {"norm_layer": P(name="group_norm", num_groups=-4)}, "num_groups .*, above 0"),
    (
        RESNET8,
        {"norm_layer": P(name="group_norm", num_groups=3)},
        "^norm_layer: num_groups=3 .* 16",
    ),
    (RESNET8, {"norm_layer": P(name="batch_norm", momentum=1.5)}, "^norm_layer: momentum=1.5"),
    (POD4["resnet50_mlperf_pod4_bs20"], {"validation_num_replicas": 8}, "use 4 at most"),
    (IPU["resnet50_infer_bs16"], {"validation_num_replicas": 2}, "use 1 at most"),
    (LARS8, {"validation_num_replicas": 3}, "use 1 at most"),
    (POD16_8K, {"pipeline_validation_model": True, "validation_num_replicas": 5}, "use 4 at most"),
    (RESNET8, {"optimizer": "rmsprop", "weight_decay": 0.1}, "weight_decay=0.1 .* sgd only"),
    (RESNET8, {"prefetch_depth": 256}, "^prefetch_depth=256 .*255"),
    (IPU["resnet8_test"], {**SYNTHETIC, "checkpoint_output_dir": "a"}, "^checkpoint_output_dir=a"),
    (IPU["resnet8_test"], {**SYNTHETIC, "clean_dir": False}, "^clean_dir=False .*generated"),
]


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    RULES,
    ids=[f"{number}-{'-'.join(changes)}" for number, (_, changes, _) in enumerate(RULES)],
)
def test_contradictions_are_refused(
    config: Application, changes: Dict[str, Any], message: str
) -> None:
    config.check()
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **changes).check()


PROPORTIONS = {"available_memory_proportion": (15.0, 10.0)}


@pytest.mark.parametrize(
    ("config", "changes", "kind"),
    [
        (POD16_8K, {"device_mapping": (0, 1)}, DimensionError),
        (POD16_8K, {"device_mapping": (0, 1, 3, 3)}, DimensionError),
        (POD16_8K, {"device_mapping": (0, 1, -1, 2)}, DimensionError),
        (POD16_8K, PROPORTIONS, DimensionError),
        (RESNET8, PROPORTIONS, UnallowedConfigurationError),
        (HOST_8K, {"accelerator_side_preprocess": False}, UnallowedConfigurationError),
    ],
)
def test_some_errors_have_the_original_types(
    config: Application, changes: Dict[str, Any], kind: type
) -> None:
    (option,) = changes
    with pytest.raises(ValueError, match=option) as caught:
        dataclasses.replace(config, **changes).check()
    assert type(caught.value) is kind


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: run it there")
def test_a_large_ipu_number_is_refused_without_counting_up_to_it() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 28), hard))
    try:
        with pytest.raises(DimensionError, match=f"device_mapping={10**11}: "):
            dataclasses.replace(RESNET8, device_mapping=(10**11,)).check()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_valid_combinations_are_accepted() -> None:
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
    ("option", "overruled"),
    [
        ("pipeline_validation_model", "pipeline_validation_model"),
        ("ckpt_all_instances", "ckpt_all_instances"),
        ("accelerator_side_reduction", "accelerator_side_reduction"),
        ("compile_only", "on_demand"),
        ("deterministic", "shuffle"),
    ],
)
def test_options_that_yield_are_named(option: str, overruled: str) -> None:
    assert settled(RESNET8) == RESNET8
    changes: Dict[str, Any] = {option: True}
    asked = dataclasses.replace(RESNET8, **changes)
    asked.check()
    (warning,) = asked.warnings
    assert warning.startswith(f"{overruled} is off: ")
    changes = {overruled: False}
    assert settled(asked) == dataclasses.replace(asked, **changes)


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
def test_any_number_is_accepted_or_refused_with_a_message(data: st.DataObject) -> None:
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
