"""TensorFlow's CNNs on IPUs, run by the whole suite on the stand-in for the SDK's TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from tests.cases.test_tensorflow_ipu_suite import of_the_process, run
from tests.support.harness import records_in

pytestmark = pytest.mark.framework

# A network of the same kind that a CPU traces in seconds.
SMALL = ["--data=generated", "--precision=32.32", "--set=model_size=10", "--set=image_size=32"]


def test_the_suite_measures_weight_updates_of_a_pipeline(tmp_path: Path) -> None:
    words: List[str] = [
        *SMALL,
        "-k=resnet50-m2000",
        "--set=micro_batch_size=2",
        "--set=shards=2",
        "--set=replicas=2",
        "--set=gradient_accumulation_count=4",
        "--set=pipeline_splits=b2/0/relu",
    ]
    run(tmp_path, "bench_training/bench_cnn_tensorflow.py", *words).assert_code(0)
    (record,) = records_in(tmp_path).values()
    effective = record["effective"]
    updates = record["rounds"]["batches_per_step"]
    assert record["rounds"]["count"] == 2
    assert record["items_per_round"] == 2 * 4 * 2 * updates
    assert effective["engine"] == "tensorflow-ipu"
    assert effective["ipus"] == 4
    assert effective["options"]["pipeline_schedule"] == "Grouped"
    assert effective["updates_per_call"] == updates
    calls = 1 + 2 + 2  # compile, warm-up and rounds; there may be more in between
    assert record["counters"]["weight_updates"] >= updates * calls
    assert record["counters"]["loss"] >= 0
    assert "pipeline" in of_the_process(tmp_path)["calls"]


def test_the_suite_measures_the_validation_of_replicas(tmp_path: Path) -> None:
    words: List[str] = [*SMALL, "-k=resnet50-m2000-bs1-", "--set=instances=1"]
    run(tmp_path, "bench_inference/bench_cnn_tensorflow.py", *words).assert_code(0)
    (record,) = records_in(tmp_path).values()
    batches = record["rounds"]["batches_per_step"]
    assert record["items_per_round"] == 4 * batches
    assert record["effective"]["ipus"] == 4
    assert record["effective"]["options"]["instances"] == 1
