"""A program's call returns when its run on the IPUs has finished.

The stand-in's IPUs run in parallel to the host, and its clock moves when the host waits for them.
PopDist's strategy does not wait. Each program's own tests show that XLA accepts its program of
synthetic data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.plugins.measure.rounds import timed_call
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu import recorder
from tests.doubles.tensorflow_ipu.record import RUN_SECONDS
from tests.runtimes.tensorflow.ipu import test_loop as loop
from tests.runtimes.tensorflow.ipu import test_training as training
from tests.runtimes.tensorflow.ipu import test_validation as validation
from tests.support import application_ipu as application
from tests.support.tensorflow_ipu import SYNTHETIC, install

pytestmark = pytest.mark.framework

INSTANCES: Dict[str, Any] = {"replicas": 4, "instances": 2}
VALIDATING: Dict[str, Any] = {"training": False, "batches_per_step": 2}


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = install(monkeypatch)
    recorder.by_xla = False
    monkeypatch.setattr("ipubench.fixtures.data.tfds.pipeline.dataset", application.dataset)
    return module


def a_loop(data: str, **changes: Any) -> Any:
    made = loop.step(loop.Options(**changes), loop.feed(mode=data))
    made.build()
    return made


def a_training(data: str, shards: int, **changes: Any) -> Any:
    made = training.step(training.options(shards, data=data, **changes), mode=data)
    made.build()
    return made


def a_validation(data: str, shards: int, **changes: Any) -> Any:
    made = validation.step(validation.options(shards, data=data, **changes), mode=data)
    made.build()
    return made


def an_application(data: str, **changes: Any) -> Any:
    return application.step_of(replace(application.SMALL, data=data, **changes))


#: With synthetic data the fetched value is useless, but fetching it waits.
PROGRAMS: Dict[str, Callable[[], Any]] = {
    "loop": lambda: a_loop("generated"),
    "synthetic loop": lambda: a_loop("synthetic"),
    "training loop": lambda: a_training("synthetic", 1),
    "validation pipeline": lambda: a_validation("synthetic", 2),
    "application pipeline": lambda: an_application("generated", **application.PIPELINE),
}
# The programs of PopDist's strategy. Reducing the fetched values does not wait.
PIPELINED: Dict[str, Any] = {**application.PAIR, "pipeline_validation_model": True}
OF_INSTANCES: Dict[str, Dict[str, Any]] = {
    "synthetic loop": {},
    "pipeline": PIPELINED,
    "validation": VALIDATING,
    "synthetic validation pipeline": {**VALIDATING, **PIPELINED},
}


def assert_lasts(made: Any) -> None:
    """Check that a call lasts as long as the run that it starts, and leaves none behind."""
    made.compile()
    assert timed_call(made, recorder.clock) == RUN_SECONDS
    assert not recorder.queued
    made.close()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_returns_once_the_ipus_have_finished(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    if program not in ("loop", "application pipeline"):
        monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    assert_lasts(PROGRAMS[program]())


@pytest.mark.parametrize("program", OF_INSTANCES)
def test_a_call_of_an_instance_waits_although_popdists_strategy_does_not(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    data = "generated"
    if "synthetic" in program:
        data = "synthetic"
        monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    config = replace(application.SMALL, data=data, **INSTANCES, **OF_INSTANCES[program])
    config.check()
    application.start(monkeypatch, 1, 2, config.measured_replicas, config.measured_shards)
    assert_lasts(application.step_of(config))


def test_popdists_strategy_starts_a_program_and_returns(
    monkeypatch: pytest.MonkeyPatch, tf: Any
) -> None:
    application.start(monkeypatch, 0, 2, 4, 1)
    (module,) = double.strategies().values()
    recorder.attached = 1
    run = tf.function(lambda: tf.constant(3.0), jit_compile=True)
    strategy = module.PopDistStrategy()
    with strategy.scope():
        result = strategy.run(run)
        assert (recorder.now, recorder.queued) == (0, 1)
        assert result.numpy() == 3
        assert (recorder.now, recorder.queued) == (RUN_SECONDS, 0)


def test_a_failure_on_the_ipus_of_an_instance_is_raised_when_fetched(
    monkeypatch: pytest.MonkeyPatch, tf: Any
) -> None:
    """Its batches end after the first call."""
    short = application.dataset
    monkeypatch.setattr(
        "ipubench.fixtures.data.tfds.pipeline.dataset",
        lambda *args, **kwargs: short(*args, **kwargs).take(8),
    )
    config = replace(application.SMALL, **INSTANCES)
    application.start(monkeypatch, 1, 2, 4, 1)
    made = application.step_of(config)
    made.compile()
    with pytest.raises(CaseError, match="(?s) 2 IPUs .*: .*End of"):
        made()
    made.close()
