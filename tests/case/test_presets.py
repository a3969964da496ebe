"""configs.yml: misspelt keys and values of the wrong type are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.options import CaseConfig
from ipubench.fixtures.case.presets import Presets, load_presets
from ipubench.fixtures.case.yaml_reader import YamlError, parse
from tests.support.harness import ROOT


def presets(path: Path, options: str, **more: Any) -> Presets[Classifier]:
    path.write_text(f"host:\n  mine: {{{options}}}\n")
    return load_presets(path, "host", Classifier, **more)


def load(path: Path, options: str) -> Classifier:
    return presets(path, options)["mine"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "configs.yml"


def test_a_preset_has_its_name_and_its_options(path: Path) -> None:
    config = load(path, "micro_batch_size: 4, pipeline_splits: [conv1, fc]")
    assert (config.name, config.micro_batch_size) == ("mine", 4)
    assert config.pipeline_splits == ("conv1", "fc")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("microbatch: 4", "mine .* microbatch; .* micro_batch_size"),
        ('micro_batch_size: "4"', "micro_batch_size: '4' .* int"),
        ("model: resnet5", "model: 'resnet5' .*; .* resnet50"),
        ("eight_bit_io: 1", "eight_bit_io: 1 .* bool"),
        ("batch_sizes: 4", r"mine: batch_sizes: .*\[1, 16\]"),
        ("batch_sizes: [1, 0]", "mine: batch_sizes: '0' .* 1"),
        ("sweep_batch_sizes: [2]", "sweep_batch_sizes: .* batch_sizes"),
        ("micro_batch_size: 4, batch_sizes: [1]", r"mine: micro_batch_size: .*: \[4\]"),
        ("quick: 1", "mine: quick "),
    ],
)
def test_an_error_names_the_file_the_preset_and_the_key(
    path: Path, options: str, message: str
) -> None:
    with pytest.raises(YamlError, match=f"configs.yml, line 2: .*{message}"):
        load(path, options)


def test_a_duplicate_name_or_a_missing_group_is_refused(path: Path) -> None:
    path.write_text("host:\n  mine: {}\n  mine: {}\n")
    with pytest.raises(YamlError, match="configs.yml, line 3: 'mine'"):
        load_presets(path, "host", Classifier)
    path.write_text("host: {}\n")
    with pytest.raises(YamlError, match="line 1: .* ipu; .* host"):
        load_presets(path, "ipu", Classifier)


def test_an_entry_lists_its_batch_sizes_and_whether_it_is_quick(path: Path) -> None:
    found = presets(path, "batch_sizes: [16, 1], sweep_batch_sizes: [4], quick: true")
    (sweep,) = found.entries
    assert (sweep.key, sweep.values, sweep.usual) == ("micro_batch_size", (1, 4, 16), (1, 16))
    assert sweep.quick is True
    assert found["mine"].micro_batch_size == 16
    (sweep,) = found.at("batches_per_step", (1, 8), usual=(8,))
    assert (sweep.key, sweep.values, sweep.usual) == ("batches_per_step", (1, 8), (8,))
    assert sweep.quick is True


def test_an_entry_without_batch_sizes_runs_unchanged(path: Path) -> None:
    (sweep,) = presets(path, "micro_batch_size: 4").entries
    assert [(config.name, tier) for config, tier in sweep.configurations()] == [("mine", "usual")]
    assert sweep.quick is False


def test_an_entry_cannot_set_what_the_bench_file_decides(path: Path) -> None:
    problem = "mine: data: the bench file sets it for the whole group; use --set=data=VALUE"
    with pytest.raises(ValueError, match=f"line 2: {problem}"):
        presets(path, "data: real", refused=("data",))
    other = path.with_name("other.yml")  # a file is read once
    with pytest.raises(ValueError, match="quick: "):
        presets(other, "quick: true", refused=("quick",))


def test_cases_without_a_batch_size_refuse_batch_sizes(path: Path) -> None:
    path.write_text("host:\n  mine: {batch_sizes: [4]}\n")
    with pytest.raises(ValueError, match="batch_sizes: "):
        load_presets(path, "host", CaseConfig)


@pytest.mark.parametrize("path", sorted(ROOT.glob("bench_*/*.yml")), ids=lambda path: path.name)
def test_libyaml_and_pyyaml_read_our_files_alike(path: Path) -> None:
    pytest.importorskip("yaml._yaml", reason="PyYAML was built without libyaml")
    text = path.read_text(encoding="utf-8")
    assert parse(text, "x", ours=True) == parse(text, "x")
