"""The classification cases have the numbers of the original program's configuration files."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Tuple

import pytest

from ipubench.bench_inference.bench_cnn_torch import (
    HOST,
    IPU,
    IPU_OTHERS,
    OPENVINO,
    POD4,
)
from ipubench.bench_inference.bench_triton import HOST as TRITON
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.cases import CaseSet, Sweep
from ipubench.fixtures.case.presets import Presets
from ipubench.plugins.selection.expand import expand

# micro batch, device iterations, samples per host call
PRESETS = {
    "resnet50": ("resnet50", 90, 128, 11520),
    "efficientnet-b0": ("efficientnet-b0", 49, 128, 6272),
    "efficientnet-b4": ("efficientnet-b4", 12, 128, 1536),
    "efficientnet-b0-g16-gn": ("efficientnet-b0", 106, 128, 13568),
    "efficientnet-b4-g16-gn": ("efficientnet-b4", 26, 128, 3328),
    "mobilenet-v3-small": ("mobilenet-v3-small", 224, 64, 14336),
    "mobilenet-v3-large": ("mobilenet-v3-large", 64, 128, 8192),
    "common": ("resnet18", 1, 128, 128),
}
GROUPED = {
    "efficientnet_group_dim": 16,
    "efficientnet_expand_ratio": 4,
    "norm_type": "group",
    "norm_num_groups": 4,
    "norm_eps": 0.001,
    "enable_fast_groupnorm": True,
    "random_weights": True,
}
# benchmarks.yml: its preset, I/O tiles, prefetch depth
BENCHMARKS = {
    "resnet50_infer_gen_pod4": ("resnet50", 64, True),
    "resnet50_minlatency": ("resnet50", 0, False),
    "resnext101": ("resnext101", 32, True),  # of SDK 3.0 and 3.1
    "efficientnet_b0": ("efficientnet-b0", 64, True),
    "efficientnet_b0_minlatency": ("efficientnet-b0", 0, False),
    "efficientnet_b0_gn": ("efficientnet-b0-g16-gn", 64, True),
    "efficientnet_b4": ("efficientnet-b4", 32, True),
    "efficientnet_b4_minlatency": ("efficientnet-b4", 0, False),
    "efficientnet_b4_gn": ("efficientnet-b4-g16-gn", 32, True),
}
PUBLISHED_BATCHES = {
    "resnet50": (1, 4, 16, 32, 64, 90),
    "resnext101": (1, 2, 4, 8, 16),
    "efficientnet-b0": (1, 8, 16, 32),
}
LATEST_BATCHES = {
    "resnet50_infer_gen_pod4": {1, 64},
    "resnet50_minlatency": {1, 4},
    "efficientnet_b0": {1, 48},
    "efficientnet_b0_minlatency": {1, 4},
    "efficientnet_b0_gn": {1, 100},
    "efficientnet_b4": {1, 12},
    "efficientnet_b4_minlatency": {1, 4},
    "efficientnet_b4_gn": {1, 21},
}


def options(config: Classifier) -> Dict[str, Any]:
    return dataclasses.asdict(config)


@pytest.mark.parametrize(("name", "facts"), PRESETS.items())
def test_the_presets_are_the_originals(name: str, facts: Tuple[str, int, int, int]) -> None:
    model, micro_batch, iterations, samples = facts
    config = IPU[name]
    assert (config.model, config.micro_batch_size) == (model, micro_batch)
    assert config.batches_per_step == iterations
    assert micro_batch * iterations * config.replicas == samples
    assert (config.precision, config.half_partial, config.eight_bit_io) == ("16.16", True, True)
    assert (config.normalization_location, config.system) == ("ipu", "ipu")
    assert config.norm_type == ("group" if name.endswith("-gn") else "batch")


def test_there_is_no_other_preset() -> None:
    assert set(IPU) == {*PRESETS, "resnext101"}


def test_every_network_has_an_ipu_case_with_its_name() -> None:
    from ipubench.models.torch.architectures import ARCHITECTURES

    own = {**IPU, **IPU_OTHERS}
    missing = set(ARCHITECTURES) - {name for name in own if own[name].model == name}
    assert not missing, (
        f"add {sorted(missing)} to the group ipu_others of bench_inference/configs.yml"
    )
    for name, config in IPU_OTHERS.items():
        changes: Dict[str, Any] = {"name": name, "model": name, "micro_batch_size": 16}
        assert config == dataclasses.replace(IPU["common"], **changes)


@pytest.mark.parametrize("name", ["efficientnet-b0-g16-gn", "efficientnet-b4-g16-gn"])
def test_the_modified_networks_are_the_originals(name: str) -> None:
    for config in (IPU[name], HOST[name]):
        assert {key: options(config)[key] for key in GROUPED} == GROUPED


@pytest.mark.parametrize(("name", "facts"), BENCHMARKS.items())
def test_the_benchmarks_are_the_originals(name: str, facts: Tuple[str, int, bool]) -> None:
    preset, tiles, prefetch = facts
    config = POD4[name]
    assert (config.num_io_tiles, config.exchange_prefetch) == (tiles, prefetch)
    instances = 2 if name in LATEST_BATCHES else 4  # of SDK 3.4, of 3.1
    assert (config.system, config.replicas, config.instances) == ("pod4", 4, instances)
    assert (config.data, config.dataloader_worker) == ("generated", 16)
    differs = {
        *("name", "system", "micro_batch_size", "num_io_tiles", "exchange_prefetch", "replicas"),
        *("instances", "data", "dataloader_worker"),
    }
    ours = {key: value for key, value in options(config).items() if key not in differs}
    theirs = {key: value for key, value in options(IPU[preset]).items() if key not in differs}
    assert ours == theirs


def at(presets: Presets[Classifier], name: str) -> Sweep:
    """Return one entry of the file with its batch sizes."""
    (found,) = (sweep for sweep in presets.entries if sweep.base.name == name)
    return found


def test_an_entry_usually_runs_the_batch_sizes_of_the_release_that_it_is_of() -> None:
    for name, sizes in LATEST_BATCHES.items():
        assert set(at(POD4, name).usual) == sizes
    assert at(POD4, "resnet50_infer_gen_pod4").values == (1, 2, 4, 16, 32, 64, 80)
    assert POD4["resnet50_infer_pod4"].instances == 4  # of SDK 3.1
    assert all(sweep.key == "micro_batch_size" for sweep in POD4.entries)


def test_every_network_has_a_host_variant_and_the_published_batch_sizes() -> None:
    from ipubench.models.torch.architectures import ARCHITECTURES

    assert {config.model for config in HOST.values()} == set(ARCHITECTURES)
    assert set(PRESETS) - {"common"} <= set(HOST)
    for name, sizes in PUBLISHED_BATCHES.items():
        assert at(HOST, name).values == sizes
        assert set(sizes) <= set(at(IPU, name).values)
    assert all(sweep.usual == (1, 16) for sweep in [*HOST.entries, *OPENVINO.entries])
    assert all(
        at(OPENVINO, f"{name}-openvino").values == at(HOST, name).values
        for name in ("resnet50", "efficientnet-b0")
    )


def test_an_ipu_runs_the_published_batch_sizes_and_always_the_preset_one() -> None:
    sweep = at(IPU, "efficientnet-b0")
    assert sweep.values == (1, 8, 16, 32, 49)
    assert sweep.usual == (49,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_io_tiles": 16}, "num_io_tiles=16: "),
        ({"num_io_tiles": 33}, "num_io_tiles=33: "),
        ({"num_io_tiles": 194}, "num_io_tiles=194: "),
        ({"system": "ipu", "data": "synthetic", "num_io_tiles": 32}, "num_io_tiles overlaps"),
        ({"enable_fast_groupnorm": True}, "enable_fast_groupnorm needs norm_type=group"),
        ({"efficientnet_group_dim": 16}, "EfficientNet, not resnet18"),
        ({"efficientnet_expand_ratio": 4}, "EfficientNet, not resnet18"),
        ({"replicas": 2}, "replicas=2 needs an IPU"),
        (
            {"system": "ipu", "replicas": 4, "instances": 2, "compile_only": True},
            "compile_only with instances=2: ",
        ),
    ],
)
def test_meaningless_options_are_refused(changes: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(Classifier(), **changes).check()


def test_synthetic_data_leaves_out_cases_that_overlap_their_transfers() -> None:
    cases = CaseSet.of(POD4["resnet50_infer_gen_pod4"], {})
    (case,) = expand(cases, {}, "synthetic")
    assert case.excluded.startswith("--data=synthetic: num_io_tiles ") and not case.error
    (case,) = expand(cases, {"num_io_tiles": ["0"]}, "synthetic")
    assert (case.config.data, case.excluded, case.error) == ("synthetic", "", "")
    (case,) = expand(cases, {"num_io_tiles": ["33"]}, "synthetic")
    assert "num_io_tiles=33: " in case.error
    # A host records the option only.
    host = CaseSet.of(HOST["resnet50"], {})
    (case,) = expand(host, {"num_io_tiles": ["32"]}, "synthetic")
    assert (case.excluded, case.error) == ("", "")
    ipu = CaseSet.of(IPU["resnet50"], {"data": ("synthetic", "real")})
    synthetic, real = expand(ipu, {"num_io_tiles": ["32"]})
    assert "num_io_tiles overlaps" in synthetic.error and not real.error


def test_a_profile_of_an_ipu_takes_the_fewest_batches() -> None:
    family = CaseSet.of(IPU["resnet50"], {})
    (usual,) = expand(family, {})
    (case,) = expand(family, {}, profiled=True)
    assert (
        case.config.batches_per_step == case.config.fewest_batches < usual.config.batches_per_step
    )
    assert (case.id, case.error) == (usual.id, "")
    (given,) = expand(family, {"batches_per_step": ["7"]}, profiled=True)
    assert given.config.batches_per_step == 7
    stages = dataclasses.replace(IPU["resnet50"], pipeline_splits=("layer2/0/conv1",))
    tiles = dataclasses.replace(stages, num_io_tiles=32)
    assert (stages.fewest_batches, tiles.fewest_batches) == (2, 3)


def test_inference_in_pytorch_has_no_master_weights() -> None:
    """The original program has 16.16 and 32.32 only."""
    for config in (HOST["resnet50"], IPU["resnet50"], TRITON["resnet50"]):
        (case,) = expand(CaseSet.of(config, {}), {}, precision="16.32")
        assert case.excluded.startswith("--precision=16.32, ") and not case.error
        (case,) = expand(CaseSet.of(config, {}), {}, precision="32.32")
        assert not case.excluded and case.config.precision == "32.32"
