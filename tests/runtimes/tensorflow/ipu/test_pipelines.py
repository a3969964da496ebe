"""The micro batches that fill a pipeline: options are refused as in the SDK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Tuple

import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.bench_application import POD4
from ipubench.bench_training.training import Training
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.tensorflow.ipu.pipelines import (
    check_training,
    micro_batches_at_once,
)
from tests.doubles.tensorflow_ipu import recorder
from tests.doubles.tensorflow_ipu.pipelining import PipelineSchedule, check_count
from tests.runtimes.tensorflow.ipu import test_training as training
from tests.runtimes.tensorflow.ipu import test_validation as validation
from tests.support import application_ipu as application
from tests.support.tensorflow_ipu import install

pytestmark = pytest.mark.framework

FOUR = (0, 1, 2, 3)


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


@pytest.mark.parametrize(
    ("schedule", "mapping", "trains", "wanted"),
    [
        ("Grouped", FOUR, True, 8),
        ("Grouped", FOUR, False, 4),
        ("Grouped", (0, 0, 1), True, 6),
        ("Interleaved", FOUR, True, 4),
        ("Interleaved", (0, 1), True, 2),
        ("Interleaved", (0, 0, 1), False, 1),
        # The example in the SDK's source: only rotations by 0 and 2 never meet.
        ("Interleaved", (0, 1, 2, 0), True, 2),
        ("Sequential", FOUR, True, 1),
    ],
)
def test_the_schedule_determines_the_concurrent_micro_batches_of_a_pipeline(
    tf: Any, schedule: str, mapping: Tuple[int, ...], trains: bool, wanted: int
) -> None:
    assert micro_batches_at_once(schedule, mapping, trains) == wanted
    if len(set(mapping)) < len(mapping) and trains and schedule == "Interleaved":
        return  # refused for another reason
    given = (list(mapping), PipelineSchedule[schedule], trains)
    check_count(2 * wanted, *given)
    if wanted > 1:
        with pytest.raises(tf.errors.FailedPreconditionError, match=f"multiple of {wanted}"):
            check_count(2 * wanted + 1, *given)


@pytest.mark.parametrize(
    ("schedule", "least"), [("Grouped", 4), ("Interleaved", 2), ("Sequential", 1)]
)
def test_training_refuses_early_what_the_sdk_would_refuse_after_attaching(
    schedule: str, least: int
) -> None:
    recorder.only_arguments = True
    config = training.options(2, pipeline_schedule=schedule, gradient_accumulation_count=least)
    check_training(schedule, (0, 1), least)
    run_once(config)
    if least == 1:
        return
    with pytest.raises(ValueError, match=f"gradient_accumulation_count={2 * least}$"):
        check_training(schedule, (0, 1), least + 1)
    with pytest.raises(CaseError, match=f"multiple of {least}"):
        run_once(replace(config, gradient_accumulation_count=least + 1))


def run_once(config: Training) -> None:
    """Attach to the IPUs and run the program once, whatever the result."""
    made = training.step(config)
    made.build()
    made._run = made._tf.function(made._program, autograph=False, jit_compile=True)
    try:
        made._execute()
    finally:
        made.close()


def test_interleaved_stages_do_not_train_on_one_ipu() -> None:
    config: Application = replace(
        application.SMALL,
        pipeline_splits=application.SPLITS,
        device_mapping=(0, 0, 1),
        gradient_accumulation_count=6,
    )
    config.check()
    interleaved = replace(config, pipeline_schedule="Interleaved")
    with pytest.raises(ValueError, match="device_mapping=0 0 1"):
        interleaved.check()
    with pytest.raises(NotImplementedError):
        check_count(6, [0, 0, 1], PipelineSchedule.Interleaved, True)
    # Validation has no backward stages.
    replace(interleaved, training=False, pipeline_validation_model=True).check()
    replace(interleaved, system="host").check()
    check_training("Sequential", (0, 0, 1), 1)


def test_validation_refuses_early_what_the_sdk_would_refuse_after_attaching(tf: Any) -> None:
    seven = (0, 0, 1, 1, 2, 2, 3)
    config = replace(
        POD4["resnet50_mlperf_pod4_bs20"],
        training=False,
        pipeline_validation_model=True,
        replicas=1,
        dbn_replica_group_size=1,
        device_mapping=seven,
    )
    config.check()  # Sequential
    replace(config, pipeline_schedule="Grouped").check()
    interleaved = replace(config, pipeline_schedule="Interleaved")
    with pytest.raises(ValueError, match=" 3 micro batches .*: .* 14 "):
        interleaved.check()
    with pytest.raises(tf.errors.FailedPreconditionError, match="multiple of 3"):
        check_count(14, list(seven), PipelineSchedule.Interleaved, False)
    replace(interleaved, device_mapping=(0, 1, 2, 3, 3, 3, 3)).check()
    replace(interleaved, pipeline_validation_model=False).check()


@pytest.mark.parametrize("schedule", ["Grouped", "Sequential"])
def test_validation_rounds_a_call_to_a_multiple_of_its_pipeline(schedule: str) -> None:
    made = validation.step(validation.options(4, pipeline_schedule=schedule, batches_per_step=7))
    calls = 50000 // (4 * 4) // round(50000 // (4 * 4) / 7)
    assert made.batches_per_step == (calls if schedule == "Sequential" else calls // 4 * 4)
