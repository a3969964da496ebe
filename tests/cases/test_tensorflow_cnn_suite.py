"""Small TensorFlow CNN cases as a user runs them: records and failures."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict

import pytest

from tests.support.harness import ROOT, Outcome, records_in, refused, run_pytest
from tests.support.tensorflow_cases import IMAGES_PER_CLASS, image_folder, record_folder

pytestmark = pytest.mark.framework
pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")

SMALL = ("--set=model_size=10", "--set=image_size=32", "--set=micro_batch_size=4", "--steps=2")
TRAINING = "bench_training/bench_cnn_tensorflow.py"
INFERENCE = "bench_inference/bench_cnn_tensorflow.py"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_folder(tmp_path_factory.mktemp("records"))


def environment(folder: Path) -> Dict[str, str]:
    given = {**os.environ, "IPUBENCH_LEASE_DIR": str(folder / "leases"), "COLUMNS": "80"}
    given.pop("DATASETS_DIR", None)
    return given


def run(folder: Path, *words: str) -> Outcome:
    results = f"--results-dir={folder / 'results'}"
    words = ("--device=cpu", results, *SMALL, *words)
    return run_pytest(ROOT, environment(folder), *words, framework="tensorflow")


def test_weight_updates_of_training_are_recorded(tmp_path: Path, records: Path) -> None:
    run(tmp_path, TRAINING, "-k", "resnet50-real", f"--dataset-dir={records}").assert_code(0)
    (record,) = records_in(tmp_path / "results").values()
    assert record["data"]["mode"] == "real"
    assert record["throughput"]["unit"] == "images/s"
    # An update takes two micro batches of 4; the host chose the number of updates per round.
    assert record["items_per_round"] == 8 * record["rounds"]["batches_per_step"]
    assert record["throughput_mean"] == record["throughput"]["mean"]
    assert record["effective"]["gradient_accumulation"] == 2
    counters = record["counters"]
    assert counters["weight_updates"] >= 2 * record["rounds"]["batches_per_step"]
    assert counters["loss"] > 0
    assert record["data"]["augmented"]


@pytest.mark.nightly
def test_validation_runs_alone(tmp_path: Path, records: Path) -> None:
    words = ["-k", "resnet50-bs4-real", f"--dataset-dir={records}"]
    run(tmp_path, INFERENCE, *words, "--batches-per-step=2").assert_code(0)
    (alone,) = records_in(tmp_path / "results").values()
    assert alone["items_per_round"] == 4 * 2
    assert alone["effective"]["folded_norms"] == 12  # of a ResNet-10


def test_instances_read_different_images(tmp_path: Path, records: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        pytest.skip("needs two cores that this process may use")
    words = ["-k", "resnet50-bs4-real", f"--dataset-dir={records}", "--set=instances=4"]
    run(tmp_path, INFERENCE, *words, "--batches-per-step=1").assert_code(0)
    (record,) = records_in(tmp_path / "results").values()
    facts = record["effective"]["instances"]
    assert (facts["asked"], facts["ran"]) == (4, min(4, cores))
    assert record["items_per_round"] == 4 * facts["ran"]
    assert record["data"]["part"] == f"1 of {facts['ran']}"


def test_unreadable_data_ends_the_run_before_it_starts(tmp_path: Path, records: Path) -> None:
    missing, images = tmp_path / "data", image_folder(tmp_path / "images")
    shutil.copytree(records, missing)
    (missing / "train-00001-of-00002").unlink()
    assert len(list(images.rglob("*.jpg"))) == 6 * IMAGES_PER_CLASS
    builder = "python -m ipubench.fixtures.data.build_tfrecords"
    for folder, said in ((missing, "train-00001-of-00002"), (images, builder)):
        words = [TRAINING, "--device=cpu", "-k", "resnet50-real", f"--dataset-dir={folder}"]
        assert said in refused(ROOT, environment(tmp_path), *words).text


def test_a_damaged_shard_fails_its_case_and_diverging_training_is_reported(
    tmp_path: Path, records: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(records, folder)
    damaged = folder / "train-00000-of-00002"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    words = [TRAINING, "-k", "resnet50 and not generated", "--sweep", f"--dataset-dir={folder}"]
    words += ["--set=abs_learning_rate=1e30", "--set=warmup_epochs=0", "--steps=3"]
    outcome = run(tmp_path, *words).assert_code(1)
    assert "train-00000-of-00002" in outcome.text
    assert "Traceback" not in outcome.text
    outcome.line("training diverged")
    (record,) = records_in(tmp_path / "results").values()
    assert record["data"]["mode"] == "synthetic"
    assert record["counters"]["loss"] is None
