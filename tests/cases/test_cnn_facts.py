"""The published command lines of the TensorFlow CNN tables, number by number."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.bench_inference import bench_cnn_tensorflow as inference
from ipubench.bench_inference.validation import Validation
from ipubench.bench_training import bench_cnn_tensorflow as training
from ipubench.bench_training.requirements import NEEDS
from ipubench.bench_training.training import Training
from ipubench.fixtures.case.cases import CaseSet
from ipubench.fixtures.case.options import option_types
from ipubench.models.tensorflow.cnn.classification import Network
from ipubench.plugins.command_line.set_option import convert

FACTS = ("gbs", "per_epoch", "per_call", "replicas", "instances", "shards", "micro")
# Per line: global batch size, weight updates per epoch and per host call, replicas, instances,
# shards, micro batch. The standard EfficientNet has the later published line (it had none before),
# with 1281167
# 768 updates per epoch and an interval of 1668
# 16.
LINES = {
    ("resnet50", "m2000"): (16384, 78, 4, 1, 1, 4, 16),
    ("resnet50", "pod16"): (16384, 78, 4, 4, 4, 4, 16),
    ("resnext101", "m2000"): (768, 1668, 104, 2, 1, 2, 6),
    ("resnext101", "pod16"): (768, 1668, 104, 8, 8, 2, 6),
    ("efficientnet-b4", "m2000"): (768, 1668, 104, 1, 1, 4, 3),
    ("efficientnet-b4", "pod16"): (768, 1668, 104, 4, 4, 4, 3),
    ("efficientnet-b4-g16", "m2000"): (200, 6405, 400, 1, 1, 4, 5),
    ("efficientnet-b4-g16", "pod16"): (800, 1601, 100, 4, 4, 4, 5),
}
SYSTEMS: Dict[str, Dict[str, Training]] = {"m2000": training.M2000, "pod16": training.POD16}
SAME_IN_ALL = {
    "pipeline": True,
    "pipeline_schedule": "Grouped",
    "xla_recompute": True,
    "enable_half_partials": True,
    "stable_norm": True,
    "disable_variable_offloading": True,
    "internal_exchange_optimisation_target": "balanced",
    "loss_scaling": 128.0,
    "data": "real",
}
OF_MODEL: Dict[str, Dict[str, Any]] = {
    "resnet50": {
        "model": "resnet",
        "model_size": "50",
        "batch_norm": True,
        "precision": "16.32",
        "pipeline_splits": ("b1/2/relu", "b2/3/relu", "b3/3/relu"),
        "optimiser": "momentum",
        "momentum": 0.9,
        "lr_schedule": "stepped",
        "normalise_input": True,
        "eight_bit_io": True,
        "dataset_cache": False,
        "pipeline_num_parallel": 32,
        "available_memory_proportion": (0.15,),
        "label_smoothing": 0.0,
        "epochs": 1.0,
    },
    "resnext101": {
        "model": "resnext",
        "model_size": "101",
        "batch_norm": False,
        "precision": "16.16",
        "pipeline_splits": ("b3/3/relu",),
        "optimiser": "momentum",
        "lr_schedule": "cosine",
        "label_smoothing": 0.1,
        "normalise_input": True,
        "eight_bit_io": True,
        "dataset_cache": True,
        "available_memory_proportion": (),
        "epochs": 2.0,
    },
    "efficientnet-b4": {
        "group_dim": 1,
        "expand_ratio": 6,
        "pipeline_splits": ("block2b", "block4b", "block6c"),
    },
    "efficientnet-b4-g16": {
        "group_dim": 16,
        "expand_ratio": 4,
        "pipeline_splits": ("block2c", "block4c", "block6a"),
    },
}
EFFICIENTNET = {
    "model": "efficientnet",
    "model_size": "B4",
    "batch_norm": False,
    "precision": "16.32",
    "optimiser": "RMSprop",
    "lr_schedule": "exponential",
    "cutmix_lambda": 0.85,
    "mixup_alpha": 0.2,
    "weight_avg_exp": 0.97,
    "enable_conv_dithering": True,
    "available_memory_proportion": (0.15,),
    "normalise_input": False,
    "eight_bit_io": False,
    "label_smoothing": 0.1,
}


@pytest.mark.parametrize("name, system", LINES)
def test_a_training_line_is_a_case_with_its_numbers(name: str, system: str) -> None:
    config = SYSTEMS[system][name]
    config.check()
    found = (
        config.global_batch_size,
        config.updates_per_epoch,
        config.updates_per_call,
        config.replicas,
        config.instances,
        config.shards,
        config.micro_batch_size,
    )
    assert dict(zip(FACTS, found)) == dict(zip(FACTS, LINES[name, system]))
    wanted = {**SAME_IN_ALL, **(EFFICIENTNET if "efficient" in name else {}), **OF_MODEL[name]}
    assert {key: getattr(config, key) for key in wanted} == wanted
    assert config.ipus == {"m2000": 4, "pod16": 16}[system]
    assert CaseSet.of(config, {}).identifier(config, frozenset()) == f"{name}-{system}-real"


def test_an_efficientnet_on_a_pod_runs_one_epoch() -> None:
    assert training.M2000["efficientnet-b4-g16"].epochs == 2.0
    assert training.POD16["efficientnet-b4-g16"].epochs == 1.0


@pytest.mark.parametrize("name", sorted(training.HOST))
def test_a_host_variant_trains_like_its_line(name: str) -> None:
    host, line = training.HOST[name], training.M2000[name]
    host.check()
    differ = {
        field.name
        for field in dataclasses.fields(host)
        if getattr(host, field.name) != getattr(line, field.name)
    }
    assert differ <= {
        *("system", "replicas", "shards", "pipeline", "pipeline_splits", "pipeline_schedule"),
        *("gradient_accumulation_count", "xla_recompute"),
    }
    assert host.ipus == 0


def test_rates_are_the_original_ones() -> None:
    assert training.M2000["resnet50"].full_rate == 16384 / 2048
    assert training.M2000["resnext101"].full_rate == 768 / 2048
    b4 = training.POD16["efficientnet-b4-g16"]
    optimiser: Any = b4.optimiser_for(None)
    assert training.POD16["efficientnet-b4-g16"].network.groups == 4
    assert b4.full_rate == 800 / 16384
    assert optimiser._decay == pytest.approx(1 - 800 / 16384)
    assert optimiser._weight_decay == 1e-5
    assert training.POD16["resnet50"].optimiser_for(None)._weight_decay == 1e-4
    assert b4.rate(0) == 0.0
    # One of five warm-up epochs, and a few drops of the exponential schedule at its end.
    assert b4.rate(1600) == pytest.approx(b4.full_rate * 1600 / 8005 * 0.97**145)


@pytest.mark.parametrize("data, mixes", [("real", True), ("generated", False)])
def test_repeated_images_are_not_mixed(data: str, mixes: bool) -> None:
    config = dataclasses.replace(training.HOST["efficientnet-b4"], data=data)
    assert config.mixes is mixes


@pytest.mark.parametrize(
    "system, batch, batches", [("ipu", 1, 1000), ("ipu", 90, 555), ("m2000", 80, 156)]
)
def test_a_validation_call_is_an_equal_part_of_a_pass(
    system: str, batch: int, batches: int
) -> None:
    configs = {"ipu": inference.IPU, "m2000": inference.M2000}[system]
    config = dataclasses.replace(configs["resnet50"], micro_batch_size=batch)
    config.check()
    assert config.batches_per_call == batches


RMSPROP: Dict[str, Any] = {"optimiser": "RMSprop", "abs_learning_rate": 0.1}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"pipeline_splits": ("b1/2/relu",)}, "4 shards need 3"),
        ({"shards": 2}, "8 IPUs, pod16 has 16"),
        ({"instances": 3}, "instances=3"),
        ({"pipeline": False}, "one needs both"),
        ({"available_memory_proportion": (0.1, 0.2)}, "has 2 values"),
        ({"available_memory_proportion": (1.5,)}, "above 0 and up to 1"),
        ({"model_size": "51"}, "51"),
        ({"micro_batch_size": 1, "mixup_alpha": 0.2}, "micro_batch_size must be 2"),
        ({"label_smoothing": 1.0}, "label_smoothing=1"),
        ({"cutmix_lambda": 0.0}, "cutmix_lambda=0"),
        ({"loss_scaling": 0.0}, "loss_scaling=0"),
        ({"loss_scaling": 1e39}, r"loss_scaling=1e\+39"),
        ({"momentum": 1.0}, "momentum=1 "),
        ({"weight_avg_exp": 1.0}, "weight_avg_exp=1"),
        ({"hostside_norm": True}, "integers"),
        ({**RMSPROP}, "RMSprop's decay 0 .*rmsprop_decay"),  # at a batch of 16384
        ({**RMSPROP, "rmsprop_base_decay_exp": 2000}, "RMSprop's decay -inf"),
        ({"optimiser": "LARS"}, "learning rate"),  # no default
        ({"epochs": 0.0}, "epochs=0"),
        ({"epochs": 1e308}, r"epochs=1e\+308"),
        ({"seed": 2**31}, "seed=2147483648 .*2147483647"),
        ({"base_learning_rate": 2000}, r"2\^2000 \* 16384 is too large"),
        ({"base_learning_rate": 1000}, "not a float32 above 0"),
        ({"base_learning_rate": -2000}, "learning rate 0 is not"),
        ({"learning_rate_decay": 1e200}, "stepped schedule grows"),
        ({"learning_rate_schedule": (0.3, 60.0)}, "learning_rate_schedule=60 "),
    ],
)
def test_contradictions_are_refused(changes: Dict[str, Any], message: str) -> None:
    config = dataclasses.replace(training.POD16["resnet50"], **changes)
    with pytest.raises(ValueError, match=message):
        config.check()


def test_image_options_need_real_images() -> None:
    of_images: Dict[str, Any] = {
        "train_with_valid_preprocessing": True,
        "mixup_alpha": 0.5,
        "cutmix_lambda": 0.5,
    }
    for data in ("synthetic", "generated"):
        one = dataclasses.replace(training.HOST["resnet50"], data=data)
        other = dataclasses.replace(one, **of_images)
        assert not other.mixes
        assert set(of_images) <= set(one.idle())
    real = dataclasses.replace(one, data="real")
    assert not set(of_images) & set(real.idle())


def test_weight_decay_with_lars_is_idle() -> None:
    lars: Dict[str, Any] = {"optimiser": "LARS", "abs_learning_rate": 0.1}
    one = dataclasses.replace(training.HOST["resnet50"], **lars, lars_weight_decay=0.0)
    assert one.optimiser_for(None)._weight_decay == 0.0
    other = dataclasses.replace(one, weight_decay=0.5)
    assert other.optimiser_for(None)._weight_decay == 0.0
    assert "weight_decay" in other.idle()
    changes: List[Dict[str, Any]] = [{"lars_weight_decay": -1.0}, {"optimiser": "momentum"}]
    for change in changes:
        assert "weight_decay" not in dataclasses.replace(one, **change).idle()


def test_one_ipu_has_one_memory_proportion_and_host_instances_do_not_train() -> None:
    config = dataclasses.replace(inference.IPU["resnet50"], available_memory_proportion=(0.1,))
    config.check()
    with pytest.raises(ValueError, match="has 2 values"):
        dataclasses.replace(config, available_memory_proportion=(0.1, 0.2)).check()
    with pytest.raises(ValueError, match="instances=2"):
        dataclasses.replace(training.HOST["resnet50"], instances=2).check()


B4 = "efficientnet-b4"


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("resnet50", {"expand_ratio": 4}, "expand_ratio=4 .* model=resnet: .*model=efficientnet"),
        ("resnet50", {"top_width": 0}, "needs model=efficientnet"),
        ("resnet50", {"no_se": True}, "no_se=true .* model=resnet"),
        ("resnet50", {"group_dim": 4}, "needs model=resnext or efficientnet"),
        (B4, {"convolution_groups": 4}, "needs model=resnext"),
        ("resnet50", {"groups": 8}, "needs batch_norm=false"),
        ("resnext101", {"bn_decay": 0.9}, "needs batch_norm=true"),
        ("resnet50", {"rmsprop_epsilon": 0.1}, "needs optimiser=RMSprop"),
        ("resnet50", {"lars_skip_list": ("beta",)}, "lars_skip_list=beta .* optimiser=LARS"),
        ("resnet50", {"optimiser": "SGD", "momentum": 0.5}, "optimiser=momentum or RMSprop or L"),
        ("resnet50", {"lr_drops": 10}, "needs lr_schedule=exponential"),
        ("resnext101", {"learning_rate_decay": 0.5}, "needs lr_schedule=stepped"),
        ("resnet50", {"poly_lr_end_ratio": 0.1}, "needs lr_schedule=polynomial_decay_lr"),
        ("resnet50", {"abs_learning_rate": 0.1, "base_learning_rate": -9}, "abs_learning_rate=0$"),
        (B4, {"rmsprop_decay": 0.9, "rmsprop_base_decay_exp": -12}, "=-12 .* rmsprop_decay=0.9"),
    ],
)
def test_an_option_that_does_not_apply_is_refused(
    name: str, changes: Dict[str, Any], message: str
) -> None:
    config = dataclasses.replace(training.HOST[name], **changes)
    with pytest.raises(ValueError, match=message):
        config.check()


@pytest.mark.parametrize(
    "name, changes",
    [
        ("efficientnet-b4", {"expand_ratio": 4, "top_width": 0, "block_survival_prob": 0.5}),
        ("efficientnet-b4", {"batch_norm": True}),
        ("resnext101", {"group_dim": 8, "convolution_groups": 16, "groups": 16}),
        ("resnext101", {"abs_learning_rate": 0.1}),
        ("resnet50", {"bn_decay": 0.9, "optimiser": "SGD"}),
        ("resnet50", {"optimiser": "LARS", "base_learning_rate": -9, "lars_eeta": 0.1}),
        ("resnet50", {"lr_schedule": "polynomial_decay_lr", "abs_end_learning_rate": 1e-3}),
    ],
)
def test_the_same_options_are_accepted_if_they_apply(name: str, changes: Dict[str, Any]) -> None:
    dataclasses.replace(training.HOST[name], **changes).check()


def test_needs_name_existing_options_and_values() -> None:
    fields = {field.name: field for field in dataclasses.fields(Training)}
    for name, needs in NEEDS.items():
        assert name in fields
        for other, values in needs.items():
            choices = fields[other].metadata["choices"]
            assert all(value in choices if choices else True for value in values)


def test_training_options_are_not_validation_options() -> None:
    of_validation = set(option_types(Validation))
    only_training = {"bn_decay", "dropout_rate", "block_survival_prob"}
    assert only_training | {"train_with_valid_preprocessing"} <= set(option_types(Training))
    assert not (only_training | {"train_with_valid_preprocessing"}) & of_validation
    changed = dataclasses.replace(
        training.HOST["efficientnet-b4"], dropout_rate=0.1, block_survival_prob=0.5
    )
    assert (changed.network.dropout_rate, changed.network.block_survival_prob) == (0.1, 0.5)
    assert dataclasses.replace(training.HOST["resnet50"], bn_decay=0.5).network.bn_decay == 0.5


# ------------------------------------------------------------------ pipeline splits


@pytest.mark.parametrize(
    "splits, message",
    [
        ("b1/2/rel b2/3/relu b3/3/relu", "'b1/2/rel' .* b1/2/relu or "),
        ("b1/2/relu b2/3/relu b3/6/relu", r"'b3/6/relu' .*\npossible splits: b1/0 b"),
        ("b2/3/relu b1/2/relu b3/3/relu", "'b1/2/relu' comes too late"),
        ("b2/3/relu b2/3/relu b3/3/relu", "'b2/3/relu' is given twice"),
    ],
)
@pytest.mark.parametrize("configs", [training.HOST, training.M2000, training.POD16])
def test_misspelt_splits_are_refused(
    configs: Dict[str, Training], splits: str, message: str
) -> None:
    named = convert(Training, "pipeline_splits", splits)
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(configs["resnet50"], pipeline_splits=named).check()


def test_splits_of_validation_are_checked_too() -> None:
    config = inference.M2000["efficientnet-b0"]
    config = dataclasses.replace(config, replicas=2, instances=2, shards=2, pipeline=True)
    dataclasses.replace(config, pipeline_splits=("block4b",)).check()
    with pytest.raises(ValueError, match="'block4z'"):
        dataclasses.replace(config, pipeline_splits=("block4z",)).check()


@pytest.mark.framework
@pytest.mark.parametrize(
    "network",
    [
        Network("resnet", "10"),
        Network("resnext", "14"),
        Network("efficientnet", "B0"),
        Network("efficientnet", "B0", group_dim=16, expand_ratio=1, squeeze_excite=False),
        Network("efficientnet", "B0", depth_divisor=64, depth_coefficient=1.5),
    ],
    ids=str,
)
def test_units_have_the_names_that_splits_are_checked_against(network: Network) -> None:
    tf = pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install tensorflow")
    from ipubench.models.tensorflow.cnn.classification import build_classifier

    assert [unit.name for unit in build_classifier(tf, network).units] == network.unit_names


# ------------------------------------------------------------------ any value


def test_a_network_deeper_than_the_alphabet_is_refused() -> None:
    config = dataclasses.replace(training.HOST["efficientnet-b4"], depth_coefficient=10.0)
    with pytest.raises(ValueError, match=r"depth_coefficient=10.0: .* at most 6.5"):
        config.check()
    names = dataclasses.replace(config, depth_coefficient=6.5).network.unit_names
    assert "block6z" in names


WORDS = {
    int: ["0", "1", "-1", "2000", "-2000", str(2**62), str(2**63)],
    float: ["0", "1", "-1", "1e308", "-1e308", "1e-308", "0.5"],
}
NUMBERS: List[str] = [name for name, kind in option_types(Training).items() if kind in WORDS]


@given(st.data())
def test_any_number_is_accepted_or_refused_with_a_message(data: st.DataObject) -> None:
    config: Training = data.draw(st.sampled_from(list(training.HOST.values())))
    for name in data.draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3)):
        text = data.draw(st.sampled_from(WORDS[option_types(Training)[name]]))
        try:
            config = dataclasses.replace(config, **{name: convert(Training, name, text)})
        except ValueError:
            continue
    try:
        config.check()
    except ValueError as error:
        assert str(error)
    else:
        assert config.rate(1) <= config.full_rate
