"""The application's options: presets, rules, and what each original option became."""

from __future__ import annotations

import dataclasses
import json
import os
from fractions import Fraction
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
from ipubench.bench_training.bench_application import (
    BARE,
    BARE_HOST,
    EVENTS,
    HOST,
    IPU,
    LOGS,
    POD4,
    POD16,
)
from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.options import option_types, plain_options, resolve_key
from ipubench.fixtures.case.values import Parameters
from ipubench.plugins.command_line.set_option import (
    RESERVED,
    convert,
    original_options,
    parse_assignments,
    split_values,
    unknown_key_message,
)
from tests.support.harness import ROOT, run_pytest

PRESETS: Dict[str, Application] = {**IPU, **POD4, **POD16}
P4 = ("conv2_block2_out", "conv3_block1_out", "conv4_block2_out")
P56 = tuple(f"conv{place}_post_addition_relu" for place in ("2_block4", "2_block7", "3_block4"))
ONE_IPU_4 = ("conv2_block1_out", "conv2_block3_out", "conv3_block4_out")
ONE_IPU_7 = tuple(
    f"conv{place}_out"
    for place in ("2_block1", "2_block3", "3_block1", "3_block3", "4_block1", "4_block4")
)

# ------------------------------------------------------------------ the published presets

FACTS = (
    *("model_name", "micro_batch_size", "replicas", "gradient_accumulation", "global_batch_size"),
    *("num_epochs", "precision", "optimizer", "momentum", "lr_schedule", "pipeline_splits"),
    *("shards", "memory", "norm", "norm_momentum"),
)
BN = ("custom_batch_norm", 0.97)
ML = ("custom_batch_norm", 0.9)
TABLE: Dict[str, Tuple[Any, ...]] = {
    "resnet8_test": (
        *("cifar_resnet8", 8, 1, 1, 8, 1, "16.16", "sgd", 0, "const", (), 1, (), *BN),
    ),
    "resnet8_test_lars": (
        *("cifar_resnet8", 8, 1, 1, 8, 50, "32.32", "lars", 0.9, "const", (), 1, (), *BN),
    ),
    "resnet8_16ipus_bn": (
        *("cifar_resnet8", 25, 16, 5, 2000, 70, "16.16", "sgd", 0, "cosine", (), 1, ()),
        *("batch_norm", 0.99),
    ),
    "resnet50_16ipus_16k_bn_pipeline": (
        *("resnet50", 16, 4, 256, 16384, 100, "16.32", "sgd", 0.9, "cosine", P4, 4, (0.15,), *BN),
    ),
    "resnet50_16ipus_8k_bn_pipeline": (
        *("resnet50", 16, 4, 128, 8192, 100, "16.16", "sgd", 0.9, "cosine", P4, 4, (0.15,), *BN),
    ),
    "resnet56_16ipus_8k_bn_pipeline": (
        *("cifar_resnet56", 16, 4, 128, 8192, 100, "16.16", "sgd", 0.9, "cosine", P56, 4),
        *((0.135,), *BN),
    ),
    "resnet50_16ipus_8k_gn_pipeline": (
        *("resnet50", 16, 4, 128, 8192, 100, "16.16", "sgd", 0.9, "cosine", P4, 4, (0.15,)),
        *("group_norm", None),
    ),
    "resnet50_mlperf_bs16": (
        *("resnet50", 16, 16, 9, 2304, 44, "16.16", "sgd", 0.9, "polynomial", ONE_IPU_4, 1),
        *((0.2,), *ML),
    ),
    "resnet50_mlperf_pod16_bs20": (
        *("resnet50", 20, 16, 6, 1920, 40, "16.16", "sgd", 0.9, "polynomial", ONE_IPU_7, 1),
        *((0.15,), *ML),
    ),
    "resnet50_mlperf_pod4_bs20": (
        *("resnet50", 20, 4, 6, 480, 40, "16.16", "sgd", 0.9, "polynomial", ONE_IPU_7, 1),
        *((0.15,), *ML),
    ),
    "resnet50_mlperf_pod16_lars": (
        *("resnet50", 18, 16, 12, 3456, 38, "16.16", "lars", 0.9, "polynomial", ONE_IPU_7, 1),
        *((0.15,), *ML),
    ),
    **{
        f"resnet50_infer_bs{name}": (
            *("resnet50", size, 1, 1, size, 1, "16.16", "sgd", 0.9, "polynomial", (), 1),
            *((0.2,), *ML),
        )
        for name, size in (("1", 1), ("1_test", 1), ("16", 16), ("32", 32))
    },
}
SAME_AS = {
    "train_real_pod4": "resnet50_mlperf_pod4_bs20",
    "train_real_pod16": "resnet50_mlperf_pod16_bs20",
    "pod16_conv": "resnet50_mlperf_pod16_bs20",
}
RATE_8K = 2**-13


@pytest.mark.parametrize("name", TABLE)
def test_every_preset_has_the_published_numbers(name: str) -> None:
    config = PRESETS[name]
    facts = {
        **{key: getattr(config, key) for key in FACTS if hasattr(config, key)},
        "gradient_accumulation": config.batches.gradient_accumulation,
        "global_batch_size": config.batches.global_batch_size,
        "momentum": config.optimizer_params["momentum"],
        "memory": config.memory_shares,
        "norm": config.norm_layer["name"],
        "norm_momentum": config.norm_layer.get("momentum"),
    }
    assert tuple(facts[key] for key in FACTS) == TABLE[name]
    config.check()


def test_presets_are_cases_of_the_systems_that_they_need() -> None:
    assert set(PRESETS) == set(TABLE) | set(SAME_AS)
    assert {name for name, config in PRESETS.items() if config.ipus == 16} == set(POD16)
    assert {name for name, config in PRESETS.items() if config.ipus == 4} == set(POD4)
    assert {config.system for config in IPU.values()} == {"ipu"}
    assert all(config.data == "real" for config in PRESETS.values())
    for name, original in SAME_AS.items():
        expected: Dict[str, Any] = {"name": name}
        if name != "pod16_conv":
            expected.update(num_epochs=5, validation=False)
        assert PRESETS[name] == dataclasses.replace(PRESETS[original], **expected)
        assert PRESETS[name].training
        assert PRESETS[name].logs_per_epoch == 1


def test_what_groups_of_presets_share() -> None:
    for name in ("8k_bn", "8k_gn"):
        config = PRESETS[f"resnet50_16ipus_{name}_pipeline"]
        assert config.half_partials and config.recomputation and config.eight_bit_transfer
        assert config.accelerator_side_preprocess and config.stable_norm and config.lr_staircase
        assert (config.loss_scaling, config.l2_regularization) == (128, 1e-4)
        assert not config.optimizer_state_offloading
        assert config.lr_schedule_params["initial_learning_rate"] == RATE_8K
        assert config.lr_schedule_params["epochs_to_total_decay"] == 100
        assert dict(config.lr_warmup_params) == {"warmup_mode": "mask", "warmup_epochs": 5}
    large = PRESETS["resnet50_16ipus_16k_bn_pipeline"]
    assert (large.stable_norm, large.optimizer_state_offloading) == (False, True)
    assert large.lr_schedule_params["epochs_to_total_decay"] == 95
    assert large.lr_warmup_params["warmup_mode"] == "shift"
    assert PRESETS["resnet50_16ipus_8k_gn_pipeline"].norm_layer["num_groups"] == 32
    assert PRESETS["resnet56_16ipus_8k_bn_pipeline"].pipelines_validation
    lars = PRESETS["resnet50_mlperf_pod16_lars"]
    for name in [name for name in PRESETS if "mlperf" in name]:
        config = PRESETS[name]
        assert (config.loss_scaling, config.label_smoothing) == (128, 0.1)
        assert config.ckpts_per_epoch == Fraction(1, 4)
        assert config.validation_micro_batch_size == (115 if "bs20" in name else 108)
        assert (config.dbn_replica_group_size, config.max_cross_replica_buffer_size) == (
            2,
            52428800,
        )
        assert config.internal_exchange_optimization_target == "memory"
        assert config.fused_preprocessing and config.pipeline_schedule == "Sequential"
        assert config.half_partials
        assert config.gather_conv_output == ("bs20" in name)
        if config is not lars:
            assert config.l2_regularization == 2.5e-5
            params = {"epochs_to_total_decay": 39, "end_learning_rate_ratio": 2.18e-5, "power": 2}
            assert dict(config.lr_schedule_params) == {
                "initial_learning_rate": 0.001991319444444,
                **params,
            }
    assert dict(lars.optimizer_params) == {
        **{"momentum": 0.9, "weight_decay": 5e-5, "eeta": 0.001, "epsilon": 0}
    }
    assert lars.l2_regularization == 5e-5
    assert lars.first_ckpt_epoch == 2
    assert (lars.max_reduce_many_buffer_size, lars.program.first_checkpoint_update) == (216, 740)
    for name in ("1", "1_test", "16", "32"):
        config = PRESETS[f"resnet50_infer_bs{name}"]
        assert (config.training, config.mode, config.recomputation) == (False, "inference", False)
        assert config.half_partials and config.fused_preprocessing
        assert not config.gather_conv_output
    assert not PRESETS["resnet8_test"].validation
    small = PRESETS["resnet8_test_lars"]
    assert small.validation and small.l2_regularization == 1e-5
    assert dict(small.optimizer_params) == {
        **{"momentum": 0.9, "weight_decay": 2.5e-6, "eeta": 0.001, "epsilon": 0}
    }


SIZES = {
    *("system", "micro_batch_size", "replicas", "gradient_accumulation_count"),
    *("global_batch_size", "weight_updates_per_epoch", "num_epochs", "ckpts_per_epoch"),
    *("first_ckpt_epoch", "validation", "validation_micro_batch_size", "recomputation"),
    *("pipeline_splits", "device_mapping", "available_memory_proportion", "pipeline_schedule"),
    *("dbn_replica_group_size", "pipeline_validation_model"),
    *("half_partials", "gather_conv_output"),
}
# What a host keeps, so that its baselines stay comparable.
OF_HOST = {
    "resnet8_test_lars": {"l2_regularization", "optimizer_params"},
    "resnet8_16ipus_bn": {"norm_layer"},
}


@pytest.mark.parametrize("name", TABLE)
def test_a_host_variant_is_the_same_model_and_recipe_in_another_size(name: str) -> None:
    host, preset = plain_options(HOST[name]), plain_options(PRESETS[name])
    different = {key for key in host if host[key] != preset[key]}
    assert different <= SIZES | OF_HOST.get(name, set())
    HOST[name].check()
    assert HOST[name].replicas == 1
    assert HOST[name].warnings == ()
    if HOST[name].training:
        assert HOST[name].batches.gradient_accumulation == 2
        assert HOST[name].program.calls >= 20  # enough to be measured
    LOGS["resnet8_test"].check()


# ------------------------------------------------------------------ what becomes of options

ORIGINAL = """
config config-path on-demand compile-only seed shuffle deterministic ckpts-per-epoch
first-ckpt-epoch checkpoint-input-dir checkpoint-output-dir ckpt-all-instances clean-dir dataset
dataset-path model-name eight-bit-transfer synthetic-data training validation micro-batch-size
num-epochs logs-per-epoch weight-updates-per-epoch num-replicas gradient-accumulation-count
gradient-accumulation global-batch-size precision pipeline-splits device-mapping pipeline-schedule
optimizer optimizer-params loss-scaling auto-loss-scaling weight-decay l2-regularization
recomputation accelerator-side-preprocess accelerator-side-reduction stochastic-rounding
optimizer-state-offloading fp-exceptions nanoo lr-schedule lr-schedule-params lr-warmup-params
lr-staircase dbn-replica-group-size label-smoothing pipeline-num-parallel norm-layer
fused-preprocessing half-partials internal-exchange-optimization-target
max-cross-replica-buffer-size max-reduce-many-buffer-size conv-dithering gather-conv-output
stable-norm min-remote-tensor-size available-memory-proportion scheduling-algorithm prefetch-depth
mlperf-logging wandb wandb-run-name wandb-tags validation-micro-batch-size validation-num-replicas
pipeline-validation-model sweep target-accuracy"""


def test_every_option_of_the_original_is_here_or_says_where_it_went() -> None:
    elsewhere = {"config", "config_path", "dataset_path", "synthetic_data", "mlperf_logging"}
    elsewhere |= {"wandb", "wandb_run_name", "wandb_tags", "sweep", "target_accuracy"}
    page = (ROOT / "docs" / "reference" / "application.md").read_text(encoding="utf-8")
    for name in ORIGINAL.split():
        key = name.replace("-", "_")
        assert f"`--{name}`" in page
        found = key in RESERVED or resolve_key(Application, key) is not None
        assert found != (key in elsewhere), name
        if key in elsewhere and key != "synthetic_data":
            assert original_options()[key] in unknown_key_message(key, [Application])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ipu", "use --data=synthetic instead"),
        ("host", "use --data=generated instead"),
        ("cpu", "use --data=generated instead"),
        ("tpu", "--data=synthetic (the original's ipu) or --data=generated (its host or cpu)"),
    ],
)
def test_synthetic_data_says_which_data_to_use(text: str, message: str) -> None:
    with pytest.raises(pytest.UsageError) as caught:
        parse_assignments([f"synthetic-data={text}"])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("logs_per_epoch", "1/2", Fraction(1, 2)),
        ("logs_per_epoch", "0.25", Fraction(1, 4)),
        ("ckpts_per_epoch", "2", Fraction(2)),
        ("ckpts_per_epoch", "1e-1", Fraction(1, 10)),
        ("optimizer_params", '{"momentum": 0.9}', Parameters({"momentum": 0.9})),
        ("lr_schedule_params", '{"values": [1, 2]}', Parameters({"values": [1, 2]})),
        ("lr_warmup_params", "{}", Parameters({})),
        ("device_mapping", "0 0 1", (0, 0, 1)),
        ("device_mapping", "[0, 0, 1]", (0, 0, 1)),
        ("pipeline_splits", '["one", "two"]', ("one", "two")),
        ("available_memory_proportion", "[15, 13.5]", (15.0, 13.5)),
    ],
)
def test_text_becomes_the_options_type(key: str, text: str, value: Any) -> None:
    assert split_values(text) == [text]
    assert convert(Application, key, text) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("logs_per_epoch", "1/0", "divides by 0"),
        ("logs_per_epoch", "often", "'often' is neither a number nor a fraction such as 1/2"),
        ("logs_per_epoch", "1e999999999", "neither a number nor a fraction"),
        ("logs_per_epoch", "-1/2", "'-1/2' is below the smallest value, 0"),
        ("optimizer_params", "momentum=0.9", "no JSON object; write it as"),
        ("optimizer_params", "[1]", "no JSON object"),
        ("optimizer_params", '{"momentum": {}}', "no number, word or list"),
        ("device_mapping", "[0, [1]]", r"'\[1\]' is not a whole number"),
        ("device_mapping", "[0", "no list; write it as"),
        ("dataset", "imagnet", "is not one of imagenet, .*; did you mean imagenet"),
        ("model_name", "resnet500", "did you mean resnet50"),
    ],
)
def test_values_of_another_type_are_refused(key: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert(Application, key, text)


@pytest.mark.parametrize("key", ["logs_per_epoch", "optimizer_params", "device_mapping"])
@given(text=st.text(st.sampled_from('0123456789/.e-[]{}",: ab'), max_size=20) | st.text())
def test_any_text_is_a_value_or_a_value_error(key: str, text: str) -> None:
    try:
        convert(Application, key, text)
    except ValueError as error:
        assert str(error)


def test_a_configuration_is_plain_json_and_its_hash_follows_parameters() -> None:
    config = PRESETS["resnet50_mlperf_pod16_lars"]
    options = json.loads(json.dumps(plain_options(config)))
    assert options["ckpts_per_epoch"] == "1/4"
    assert options["optimizer_params"]["eeta"] == 0.001
    other = dataclasses.replace(config, optimizer_params=Parameters({"momentum": 0.5}))
    assert config_hash(config, frozenset()) != config_hash(other, frozenset())
    moved = dataclasses.replace(config, checkpoint_output_dir="/elsewhere", clean_dir=False)
    assert config_hash(config, frozenset()) == config_hash(moved, frozenset())
    assert hash(config) != hash(other)


# ------------------------------------------------------------------ rules

HOST_8K = HOST["resnet50_16ipus_8k_bn_pipeline"]
RESNET8 = HOST["resnet8_test"]
POD16_8K = POD16["resnet50_16ipus_8k_bn_pipeline"]
BS20 = POD16["resnet50_mlperf_pod16_bs20"]
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
        {"pipeline_splits": ("conv2_block2_ou", *P4[1:])},
        PLAIN,
        "'conv2_block2_ou' does not exist; did you mean conv2_block2_out(.|\n)*conv5_block3_out",
    ),
    (POD16_8K, {"pipeline_splits": P4[::-1]}, PLAIN, "comes too late"),
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


def test_what_the_rules_allow() -> None:
    """The same options where they fit together."""
    dataclasses.replace(HOST_8K, pipeline_splits=P4, recomputation=True).check()
    eight = tuple(float(value) for value in range(10, 18))
    dataclasses.replace(POD16_8K, available_memory_proportion=eight).check()
    dataclasses.replace(POD16_8K, instances=4, pipeline_validation_model=True).check()
    dataclasses.replace(POD16_8K, instances=4, validation=False).check()
    dataclasses.replace(POD16_8K, instances=8, training=False).check()
    dataclasses.replace(POD16_8K, validation_num_replicas=16).check()
    dataclasses.replace(IPU["resnet8_test_lars"], replicas=3, validation_num_replicas=3).check()
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


# ------------------------------------------------------------------ what options stand for


def test_validation_has_a_copy_on_each_ipu_or_the_pipeline_of_training() -> None:
    assert POD16_8K.validation_batches.replicas == 16
    assert POD16_8K.validation_batches.micro_batches_per_update == 16
    piped = POD16["resnet56_16ipus_8k_bn_pipeline"].validation_batches
    assert (piped.replicas, piped.gradient_accumulation) == (4, 8)
    assert BS20.validation_batches.global_batch_size == 115 * 16
    assert BS20.images_per_batch == 1920
    assert dataclasses.replace(BS20, training=False).images_per_batch == 115 * 16


def test_a_host_validates_one_copy_whatever_the_pipeline_is() -> None:
    """Or its images per second would be those of IPUs that it has not."""
    config = dataclasses.replace(
        HOST["resnet50_infer_bs16"],
        pipeline_splits=P4,
        device_mapping=(0, 0, 1, 1),
        pipeline_validation_model=True,
    )
    config.check()
    assert config.images_per_batch == 16
    with pytest.raises(ValueError, match="validation_num_replicas=2 needs an IPU"):
        dataclasses.replace(config, validation_num_replicas=2).check()


def test_a_recipe_has_what_the_options_say() -> None:
    recipe = POD16["resnet50_mlperf_pod16_lars"].recipe
    assert (recipe.optimizer, recipe.momentum, recipe.lars_weight_decay) == ("lars", 0.9, 5e-5)
    rate = recipe.learning_rate
    assert (rate.schedule, rate.warmup_mode, rate.warmup_epochs) == ("polynomial", "shift", 2)
    assert recipe.loss_scaling == 128 * 16
    assert (recipe.preprocess, recipe.fused) == ("imagenet", True)
    assert rate.global_batch_size == 3456
    rmsprop = dataclasses.replace(
        RESNET8,
        optimizer="rmsprop",
        optimizer_params=Parameters({"base_decay_exponent": -10, "epsilon": 0.5}),
    ).recipe
    assert (rmsprop.rmsprop_base_decay_exponent, rmsprop.rmsprop_epsilon) == (-10, 0.5)
    stepped = dataclasses.replace(
        RESNET8,
        lr_schedule="stepped",
        lr_schedule_params=Parameters({"boundaries": [1, 2], "values": [3, 2, 1]}),
    )
    stepped.check()
    assert stepped.recipe.learning_rate.boundaries == (1, 2)
    assert RESNET8.recipe.preprocess == ""


def test_a_network_has_what_the_options_say() -> None:
    network = POD16["resnet50_16ipus_8k_gn_pipeline"].network
    assert (network.norm, network.groups, network.classes) == ("group_norm", 32, 1000)
    assert BS20.network.replica_group == 2
    assert RESNET8.network.image_shape == (32, 32, 3)
    assert POD16["resnet56_16ipus_8k_bn_pipeline"].network.image_shape == (224, 224, 3)


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


# ------------------------------------------------------------------ which cases run


def collected(*words: str) -> Tuple[List[str], str]:
    path = "bench_training/bench_application.py"
    outcome = run_pytest(ROOT, os.environ, "--collect-only", "-q", "--device=cpu", path, *words)
    names = [line.partition("[")[2][:-1] for line in outcome.text.splitlines() if "::" in line]
    return names, outcome.text


def test_by_default_a_host_runs_a_few_cases() -> None:
    names, text = collected()
    assert names == [
        "resnet8_test-synthetic",
        "resnet8_test-generated",
        "resnet8_test-real",
        "resnet8_test-logs1-synthetic",
        "resnet8_test-logs8-synthetic",
        "resnet8_test-logs32-synthetic",
        "resnet50_16ipus_8k_bn_pipeline-synthetic",
        "resnet50_infer_bs16-synthetic",
    ]
    assert "further configurations: --sweep, or -k with a full name" in text


def test_the_bare_command_line_is_a_case_under_its_full_name() -> None:
    config = BARE["toy_model"]
    config.check()
    facts = (config.model_name, config.dataset, config.batches.global_batch_size, config.num_epochs)
    assert facts == ("toy_model", "cifar10", 1, 1)
    assert (config.precision, config.optimizer, config.lr_schedule) == ("16.16", "sgd", "const")
    assert config == Application(name="toy_model", system="ipu")
    host = BARE_HOST["toy_model"]
    host.check()
    assert (host.batches.global_batch_size, host.program.calls, host.warnings) == (1, 20, ())
    names, _ = collected("-k", "toy_model", "--data=synthetic")
    assert names == ["toy_model-synthetic"]
    names, _ = collected()
    assert not [name for name in names if name.startswith("toy_model")]


def test_the_documents_example_of_host_events_is_a_case() -> None:
    config = EVENTS["cifar_resnet8"]
    config.check()
    assert config == Application(
        name="cifar_resnet8",
        system="ipu",
        model_name="cifar_resnet8",
        precision="16.16",
        micro_batch_size=8,
        gradient_accumulation_count=8,
        num_epochs=6,
        half_partials=True,
        validation=False,
        ckpts_per_epoch=Fraction(0),
    )
    assert config.program.calls == 6


def test_the_header_says_what_becomes_another_than_asked() -> None:
    _, text = collected("--set=ckpts_per_epoch=3", "-k", "resnet8_test-")
    assert "resnet8_test-synthetic-ckptsperepoch3 and 2 more: " in text
    updates = RESNET8.weight_updates_per_epoch
    assert f"{updates} weight updates cannot be divided into 3 equal parts; the closest" in text
    names, text = collected("--set=deterministic=yes", "-k", "resnet8_test-")
    assert names == ["resnet8_test-real-deterministicTrue"]
    assert "deterministic=True would change nothing: it is of data=real" in text
    assert "shuffle is off" in text


def test_a_name_in_full_brings_a_further_case_and_data_a_usual_one() -> None:
    names, _ = collected("-k", "resnet50_mlperf_bs16", "--data=real")
    assert names == ["resnet50_mlperf_bs16-real"]
    names, _ = collected("-k", "resnet50", "--data=real")
    assert names == ["resnet50_16ipus_8k_bn_pipeline-real", "resnet50_infer_bs16-real"]
