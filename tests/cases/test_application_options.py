"""The application's options: their originals, their values, and the cases that they give."""

from __future__ import annotations

import dataclasses
import json
import os
from fractions import Fraction
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.bench_application import BARE, BARE_HOST, EVENTS, HOST, POD16
from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.options import plain_options, resolve_key
from ipubench.fixtures.case.values import Parameters
from ipubench.models.tensorflow.training.optimisers import Lars
from ipubench.plugins.command_line.set_option import (
    RESERVED,
    convert,
    original_options,
    parse_assignments,
    split_values,
    unknown_key_message,
)
from tests.support.harness import ROOT, listed

RESNET8 = HOST["resnet8_test"]
POD16_8K = POD16["resnet50_16ipus_8k_bn_pipeline"]
BS20 = POD16["resnet50_mlperf_pod16_bs20"]

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


def test_every_original_option_exists_or_has_advice() -> None:
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
    ("text", "used"), [("ipu", "synthetic"), ("host", "generated"), ("cpu", "generated")]
)
def test_synthetic_data_is_refused_with_the_data_to_use(text: str, used: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"--data={used}"):
        parse_assignments([f"synthetic-data={text}"])
    with pytest.raises(pytest.UsageError, match=f"--data={used}"):
        parse_assignments(["synthetic-data=tpu"])


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
def test_text_becomes_the_option_type(key: str, text: str, value: Any) -> None:
    assert split_values(text) == [text]
    assert convert(Application, key, text) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("logs_per_epoch", "1/0", "divides by 0"),
        ("logs_per_epoch", "often", "'often'"),
        ("logs_per_epoch", "1e999999999", "1e999999999"),
        ("logs_per_epoch", "-1/2", "smallest value, 0"),
        ("optimizer_params", "momentum=0.9", "JSON object"),
        ("optimizer_params", "[1]", "JSON object"),
        ("optimizer_params", '{"momentum": {}}', "text or list"),
        ("device_mapping", "[0, [1]]", r"'\[1\]' is not a whole number"),
        ("device_mapping", "[0", "list"),
        ("dataset", "imagnet", "did you mean imagenet"),
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
    config = POD16["resnet50_mlperf_pod16_lars"]
    options = json.loads(json.dumps(plain_options(config)))
    assert options["ckpts_per_epoch"] == "1/4"
    assert options["optimizer_params"]["eeta"] == 0.001
    other = dataclasses.replace(config, optimizer_params=Parameters({"momentum": 0.5}))
    assert config_hash(config, frozenset()) != config_hash(other, frozenset())
    moved = dataclasses.replace(config, checkpoint_output_dir="/elsewhere", clean_dir=False)
    assert config_hash(config, frozenset()) == config_hash(moved, frozenset())
    assert hash(config) != hash(other)


def test_validation_has_a_replica_on_each_ipu_or_the_pipeline_of_training() -> None:
    assert POD16_8K.validation_batches.replicas == 16
    assert POD16_8K.validation_batches.micro_batches_per_update == 16
    piped = POD16["resnet56_16ipus_8k_bn_pipeline"].validation_batches
    assert (piped.replicas, piped.gradient_accumulation) == (4, 8)
    assert BS20.validation_batches.global_batch_size == 115 * 16
    assert BS20.images_per_batch == 1920
    assert dataclasses.replace(BS20, training=False).images_per_batch == 115 * 16


def test_a_host_validates_one_replica_whatever_the_pipeline_is() -> None:
    config = dataclasses.replace(
        HOST["resnet50_infer_bs16"],
        pipeline_splits=POD16_8K.pipeline_splits,
        device_mapping=(0, 0, 1, 1),
        pipeline_validation_model=True,
    )
    config.check()
    assert config.images_per_batch == 16
    with pytest.raises(ValueError, match="validation_num_replicas=2 needs an IPU"):
        dataclasses.replace(config, validation_num_replicas=2).check()


def test_a_recipe_follows_the_options() -> None:
    config = POD16["resnet50_mlperf_pod16_lars"]
    lars: Any = config.optimiser_for(None)
    assert isinstance(lars, Lars)
    assert (lars._momentum.factor, lars._weight_decay) == (0.9, 5e-5)
    assert lars.scaled(1.0) == 128 * 16
    assert config.batches.global_batch_size == 3456
    optimizer: Any = dataclasses.replace(
        RESNET8,
        optimizer="rmsprop",
        optimizer_params=Parameters({"base_decay_exponent": -10, "epsilon": 0.5}),
    ).optimiser_for(None)
    batch = RESNET8.batches.global_batch_size
    assert (optimizer._decay, optimizer._epsilon) == (1 - batch / 1024, 0.5)
    stepped = dataclasses.replace(
        RESNET8,
        lr_schedule="stepped",
        lr_schedule_params=Parameters({"boundaries": [1, 2], "values": [3, 2, 1]}),
    )
    stepped.check()
    per_epoch = stepped.program.updates_per_epoch
    assert [stepped.rate(epoch * per_epoch + 1) for epoch in range(3)] == [3, 2, 1]


def test_a_network_follows_the_options() -> None:
    network = POD16["resnet50_16ipus_8k_gn_pipeline"].network
    assert (network.norm, network.groups, network.classes) == ("group_norm", 32, 1000)
    assert BS20.network.replica_group == 2
    assert RESNET8.network.image_shape == (32, 32, 3)
    assert POD16["resnet56_16ipus_8k_bn_pipeline"].network.image_shape == (224, 224, 3)


def collected(*words: str) -> Tuple[List[str], str]:
    path = "bench_training/bench_application.py"
    outcome = listed(ROOT, os.environ, "--collect-only", "-q", "--device=cpu", path, *words)
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
    assert "additional configurations: --sweep" in text


def test_the_bare_command_line_is_a_case_with_its_full_name() -> None:
    config = BARE["toy_model"]
    config.check()
    facts = (config.model_name, config.dataset, config.batches.global_batch_size, config.num_epochs)
    assert facts == ("toy_model", "cifar10", 1, 1)
    assert (config.precision, config.optimizer, config.lr_schedule) == ("16.16", "sgd", "const")
    assert config == Application(name="toy_model", system="ipu")
    host = BARE_HOST["toy_model"]
    host.check()
    assert (host.batches.global_batch_size, host.program.calls, host.warnings) == (1, 20, ())
    assert {"norm_layer", "dbn_replica_group_size"} <= set(host.idle())  # it has no norms


def test_the_documented_example_of_host_events_is_a_case() -> None:
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


@pytest.mark.parametrize(
    ("logs", "calls", "warnings"),
    [("1", 6, 0), ("2", 6, 1), ("10", 66, 1), ("1/2", 3, 0), ("1/3", 2, 0), ("0", 1, 1)],
)
def test_a_host_has_the_documented_host_events(logs: str, calls: int, warnings: int) -> None:
    for system in (EVENTS, BARE_HOST):
        config = dataclasses.replace(system["cifar_resnet8"], logs_per_epoch=Fraction(logs))
        config.check()
        assert (config.program.calls, len(config.warnings)) == (calls, warnings)


def test_the_header_lists_options_that_differ_from_the_command_line() -> None:
    _, text = collected("--set=ckpts_per_epoch=3", "-k", "resnet8_test-")
    assert "resnet8_test-synthetic-ckptsperepoch3 and 2 more: " in text
    updates = RESNET8.weight_updates_per_epoch
    assert f": {updates} weight updates " in text
    names, text = collected("--set=deterministic=yes", "-k", "resnet8_test-")
    assert names == ["resnet8_test-real-deterministicTrue"]
    assert "deterministic=True " in text
    assert "shuffle is off" in text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-k", "toy_model", "--data=synthetic"], ["toy_model-synthetic"]),
        (["-k", "resnet50_mlperf_bs16", "--data=real"], ["resnet50_mlperf_bs16-real"]),
        (
            ["-k", "resnet50", "--data=real"],
            ["resnet50_16ipus_8k_bn_pipeline-real", "resnet50_infer_bs16-real"],
        ),
    ],
)
def test_a_full_name_adds_a_case_and_data_a_usual_one(words: List[str], names: List[str]) -> None:
    assert collected(*words)[0] == names
