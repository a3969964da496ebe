"""configs.yml: a misspelt key or a value of the wrong type is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.cases import load_presets


def load(path: Path, options: str) -> Classifier:
    path.write_text(f"host:\n  mine: {{{options}}}\n")
    return load_presets(path, "host", Classifier)["mine"]


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
        ("microbatch: 4", "mine has unknown options: microbatch; did you mean micro_batch_size"),
        ('micro_batch_size: "4"', "micro_batch_size: '4' is not of type int"),
        ("micro_batch_size: true", "micro_batch_size: True is not of type int"),
        ("micro_batch_size: 0", "micro_batch_size: '0' is below the smallest value, 1"),
        ("model: resnet5", "model: 'resnet5' is not one of .*; did you mean resnet50"),
        ("eight_bit_io: 1", "eight_bit_io: 1 is not of type bool"),
    ],
)
def test_a_mistake_names_the_file_the_preset_and_the_key(
    path: Path, options: str, message: str
) -> None:
    with pytest.raises(ValueError, match=f"configs.yml, line 2: .*{message}"):
        load(path, options)


def test_a_file_that_says_a_name_twice_or_lacks_a_group_is_refused(path: Path) -> None:
    path.write_text("host:\n  mine: {}\n  mine: {}\n")
    with pytest.raises(ValueError, match="configs.yml, line 3: 'mine' stands twice"):
        load_presets(path, "host", Classifier)
    path.write_text("host: {}\n")
    with pytest.raises(ValueError, match="line 1: there is no group ipu; there are host"):
        load_presets(path, "ipu", Classifier)
