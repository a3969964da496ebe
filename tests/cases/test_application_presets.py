"""The application's presets: the published numbers, and the same at a size for hosts."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, Dict, Tuple

import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.bench_application import HOST, IPU, LOGS, POD4, POD16
from ipubench.fixtures.case.options import plain_options

PRESETS: Dict[str, Application] = {**IPU, **POD4, **POD16}
P4 = ("conv2_block2_out", "conv3_block1_out", "conv4_block2_out")
P56 = tuple(f"conv{place}_post_addition_relu" for place in ("2_block4", "2_block7", "3_block4"))
ONE_IPU_4 = ("conv2_block1_out", "conv2_block3_out", "conv3_block4_out")
ONE_IPU_7 = tuple(
    f"conv{place}_out"
    for place in ("2_block1", "2_block3", "3_block1", "3_block3", "4_block1", "4_block4")
)

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


def test_presets_are_cases_of_the_systems_they_need() -> None:
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


def test_groups_of_presets_share_their_options() -> None:
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
# Hosts keep these values, so that their baselines stay comparable.
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
