"""The application on IPUs: results, configuration, instances under poprun.

The SDK is the stand-in of ``tests/doubles``, over the TensorFlow that is installed.
"""

from __future__ import annotations

import logging
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.distributed import Job, poprun_job, under_poprun
from ipubench.bench_training.bench_application import IPU, POD4, POD16
from ipubench.fixtures.case.errors import CaseError, OptionError
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.ipu import IpuDevice, IpuModelDevice
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.fixtures.runtimes.data_parallel import popdist_strategy
from ipubench.fixtures.runtimes.step import ask
from ipubench.fixtures.runtimes.tensorflow.application import checkpoints
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from ipubench.fixtures.runtimes.tensorflow.state import OPTIMISER
from ipubench.models.tensorflow.training import auto_scaling
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu import recorder
from tests.support.application_ipu import (
    BATCH,
    PAIR,
    PIPELINE,
    SMALL,
    VALIDATED,
    dataset,
    feed_of,
    settings_of,
    start,
    step_of,
)
from tests.support.sdk_api import description
from tests.support.tensorflow_ipu import HARDWARE, SYNTHETIC, given, install, values

pytestmark = pytest.mark.framework

PRESETS: Dict[str, Application] = {**IPU, **POD4, **POD16}
# Requirements of automatic loss scaling.
AUTO_SCALED: Dict[str, Any] = {
    "auto_loss_scaling": True,
    "optimizer_params": Parameters({"momentum": 0}),
    "lr_schedule": "const",
    "lr_schedule_params": Parameters({"initial_learning_rate": 8e-3}),
}


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = install(monkeypatch)
    monkeypatch.setattr("ipubench.fixtures.data.tfds.pipeline.dataset", dataset)
    return module


def on_host(config: Application) -> Any:
    """Return the same on this machine's CPU, ready."""
    config = replace(config, system="host", pipeline_splits=(), device_mapping=())
    step = step_of(config, CpuDevice(pin=False))
    step.compile()
    return step


def assert_same(ours: Any, theirs: Any) -> None:
    """Check that the values of variables are equal."""
    for mine, other in zip(values(ours), values(theirs)):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=2e-5)


def log_lines(caplog: pytest.LogCaptureFixture) -> List[Tuple[float, ...]]:
    """Return (update, rate, loss, accuracy) for each line of the training log, and clear it."""
    pattern = r"batch (\d+): .*lr: (\S+), loss: (\S+), training_accuracy: (\S+) %"
    found = re.findall(pattern, caplog.text)
    caplog.clear()
    return [tuple(map(float, values)) for values in found]


# --- results ---------------------------------------------------------------------------------


def test_a_run_agrees_with_a_host_in_log_checkpoints_and_validation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every update has its own rate, and either device resumes from the other's checkpoint."""
    caplog.set_level(logging.INFO, "ipubench.training")
    config = replace(SMALL, clean_dir=False, pipeline_validation_model=True, **PIPELINE)
    host = on_host(replace(config, checkpoint_output_dir=str(tmp_path / "host")))
    start = values(host.program.classifier.trainable_variables)
    host()
    host()
    wanted = log_lines(caplog)

    ours = step_of(replace(config, checkpoint_output_dir=str(tmp_path / "ipu")))
    assert (ours.batches_per_step, ask(ours.rounds.most)) == (2, 4)
    ours.compile()
    ours()
    found = log_lines(caplog)
    assert [line[0] for line in found] == [2, 4]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    rates = [config.rate(update) for update in (1, 3)]
    assert [line[1] for line in found] == pytest.approx(rates, rel=1e-4)
    assert_same(
        ours.program.classifier.trainable_variables, host.program.classifier.trainable_variables
    )
    moved = zip(start, values(ours.program.classifier.trainable_variables))
    assert all(np.abs(before - now).max() > 1e-4 for before, now in moved)
    counters = ours.counters()
    assert (counters["weight_updates"], counters["log_lines"], counters["checkpoints"]) == (4, 2, 1)
    for name in ("learning_rate", "training_accuracy"):
        assert counters[name] == host.counters()[name]
    assert "loss_scale" not in counters and ours.describe()["auto_loss_scaling"] is False
    (mine,), (other,) = (checkpoints.checkpoints(tmp_path / name) for name in ("ipu", "host"))
    assert mine.updates == other.updates == 4
    own, theirs = mine.arrays(), other.arrays()
    assert list(own) == list(theirs)
    assert own["draws"] == theirs["draws"] == 8

    # Both resume, each from the other's file, at the same point.
    released, configured = "reset_ipu_configuration", "IPUConfig.configure_ipu_system"
    before = len(recorder.names())
    validated = ours.finish().facts["validation"]  # for the rest of the run, too
    attaching = [name for name in recorder.names()[before:] if name in (released, configured)]
    assert attaching == [released, configured, released]  # training's own IPUs first
    assert all(0 < one["accuracy"] < 1 for one in validated)
    assert [(one["images"], one["epoch"]) for one in validated] == [
        (VALIDATED, 1.0),
        (VALIDATED, 2.0),
    ]
    ours.close()
    host()
    resumed = step_of(replace(config, checkpoint_input_dir=str(tmp_path / "host")))
    assert resumed.program.updates == 4
    resumed.compile()
    assert resumed.program.loss == pytest.approx(host.program.loss, rel=1e-4)
    assert_same(
        resumed.program.classifier.trainable_variables, host.program.classifier.trainable_variables
    )
    host.close()
    resumed.close()
    of = replace(config, training=False, checkpoint_input_dir=str(tmp_path / "ipu"))
    host_validation = on_host(of)
    facts, lines = host_validation.finish()
    assert facts["validation"] == validated
    validation = step_of(of)
    assert validation.finish().lines == lines != []
    validation.close()
    host_validation.close()


def test_validation_alone_counts_whole_passes_even_if_calls_do_not_divide_them() -> None:
    """6 micro batches: a pipeline of two for each stage, or 2 calls of 4, the last one padded."""
    config = replace(SMALL, training=False, pipeline_validation_model=True, **PIPELINE)
    made = step_of(replace(config, batches_per_step=2))
    # Twice the stages in a pipeline, repeated until a pass is complete.
    assert (made.batches_per_step, made.describe()["gradient_accumulation"]) == (1, 6)
    made.compile()
    made()
    (random,) = made.finish().facts["validation"]
    made.close()
    assert recorder.names().count("pipeline") == 1
    call = recorder.arguments("pipeline")
    assert (call["gradient_accumulation_count"], call["repeat_count"]) == (6, 1)
    assert call["device_mapping"] == [0, 0, 1]
    loop = step_of(replace(SMALL, training=False, batches_per_step=4))
    loop.compile()
    assert loop.batches_per_step == 4
    assert loop.finish().facts["validation"] == [random]
    loop.close()
    host = on_host(replace(SMALL, training=False))
    assert host.finish().facts["validation"] == [random]
    host.close()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="loop", marks=pytest.mark.nightly),
        pytest.param({"gradient_accumulation_count": 1, **PIPELINE}, id="pipeline"),
    ],
)
def test_automatic_loss_scaling_agrees_with_a_host(
    monkeypatch: pytest.MonkeyPatch, changes: Dict[str, Any]
) -> None:
    """The scale falls and rises within calls; a host without scaling has the same weights."""
    monkeypatch.setattr(auto_scaling, "FIRST", 64.0)
    monkeypatch.setattr(auto_scaling, "UPDATES", 3)
    monkeypatch.setattr(auto_scaling, "EDGE", 200.0)
    config = replace(SMALL, **AUTO_SCALED, validation=False, **changes)
    ours, host = step_of(config), on_host(config)
    scales = []
    for call in range(4):
        (ours if call else ours.compile)()  # the first call compiles
        host()
        assert ours.program.loss == pytest.approx(host.program.loss, rel=1e-4)
        mine, theirs = ours.program.state(), host.program.state()
        assert list(mine) == list(theirs)
        kept = [name for name in mine if name.startswith(OPTIMISER)]
        assert len(kept) == 4
        for name in kept:
            assert float(mine[name].numpy()) == float(theirs[name].numpy())
        scales.append(ours.counters()["loss_scale"])
        assert scales[-1] == host.counters()["loss_scale"]
        assert_same(
            ours.program.classifier.trainable_variables, host.program.classifier.trainable_variables
        )
        if config.gradient_accumulation_count == 1:
            # The averages of batch norms, too: they travel as gradients but are not scaled. A host
            # moves them with every micro batch.
            assert_same(ours.program.classifier.variables, host.program.classifier.variables)
    assert min(scales) < scales[0] == 64.0
    assert scales[-1] > min(scales)
    for step in (ours, host):
        step.close()


def test_with_synthetic_data_nothing_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the loss scale, which could be returned as well."""
    monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    options = {**PIPELINE, **AUTO_SCALED, "gradient_accumulation_count": 1}
    config = replace(SMALL, data="synthetic", **options)
    made = step_of(config)
    made.compile()
    assert np.isnan(made.program.loss)
    assert np.isnan(made.program.accuracy)
    assert made.counters() == {
        "weight_updates": 2,
        "learning_rate": config.rate(1),
        "log_lines": 1,
        "checkpoints": 0,
    }
    assert set(made.finish().facts) == {"training_seconds", "epochs", "of_epochs"}
    (queue,) = recorder.queues
    assert int(queue._taken.numpy()) == 0
    made.close()


# --- presets ---------------------------------------------------------------------------------

HALF = {"partialsType": "half"}
NAMED: Dict[str, Dict[str, Any]] = {
    "resnet8_test": {},
    "resnet50_16ipus_8k_bn_pipeline": {
        "allow_recompute": True,
        "norms.use_stable_statistics": True,
        "convolutions.poplar_options": {**HALF, "availableMemoryProportion": "0.15"},
        "matmuls.poplar_options": {**HALF, "availableMemoryProportion": "0.15"},
    },
    "resnet50_mlperf_pod16_lars": {
        "allow_recompute": True,
        "norms.experimental.distributed_batch_norm_replica_group_size": 2,
        "convolutions.poplar_options": {**HALF, "availableMemoryProportion": "0.15"},
        "matmuls.poplar_options": {**HALF, "availableMemoryProportion": "0.15"},
        "compilation_poplar_options": {
            "target.deterministicWorkers": "false",
            "opt.internalExchangeOptimisationTarget": "memory",
        },
        "optimizations.maximum_cross_replica_sum_buffer_size": 52428800,
        "optimizations.maximum_reduce_many_buffer_size": 216,
    },
}


ALWAYS: Dict[str, Any] = {
    "compilation_poplar_options": {"target.deterministicWorkers": "false"},
    "device_connection.type": "ON_DEMAND",
    "device_connection.enable_remote_buffers": True,
}


@pytest.mark.parametrize("name", NAMED)
def test_a_preset_configures_the_device(name: str) -> None:
    config = PRESETS[name]
    expected = {**ALWAYS, "floating_point_behaviour.esr": "ON", **NAMED[name]}
    assert settings_of(config) == expected
    in_validation = {
        key: value
        for key, value in expected.items()
        # It rounds to nearest, recomputes nothing, and has no statistics.
        if key != "allow_recompute" and not key.endswith(("esr", "group_size"))
    }
    assert settings_of(config, training=False) == in_validation


def test_every_other_option_reaches_the_sdk() -> None:
    config = replace(
        SMALL,
        **PIPELINE,
        seed=3,
        stochastic_rounding="RI",
        nanoo=True,
        fp_exceptions=True,
        conv_dithering=True,
        gather_conv_output=True,
        min_remote_tensor_size=4096,
        scheduling_algorithm="SHORTEST_PATH",
        on_demand=False,
        available_memory_proportion=(10, 20, 30, 40, 50, 60.5),
        prefetch_depth=5,
        recomputation=True,
        optimizer_state_offloading=False,
        internal_exchange_optimization_target="cycles",
    )
    config.check()
    assert settings_of(config) == {
        "allow_recompute": True,
        "compilation_poplar_options": {
            "target.deterministicWorkers": "portable",
            "opt.internalExchangeOptimisationTarget": "cycles",
        },
        "convolutions.poplar_options": {"enableConvDithering": "true", "gatherConvOutput": "true"},
        "experimental.enable_prng_stability": True,
        "floating_point_behaviour.inv": True,
        "floating_point_behaviour.div0": True,
        "floating_point_behaviour.oflo": True,
        "floating_point_behaviour.esr": "REPLICA_IDENTICAL_ONLY",
        "floating_point_behaviour.nanoo": True,
        "optimizations.minimum_remote_tensor_size": 4096,
        "scheduling.algorithm": "SHORTEST_PATH",
    }
    recorder.only_arguments = True
    made = step_of(config)
    made.program._run = made.program._tf.function(
        made.program._program, autograph=False, jit_compile=True
    )
    made.program._execute()
    call = recorder.arguments("pipeline")
    assert call["pipeline_schedule"].name == "Sequential"
    assert call["recomputation_mode"].name == "Auto"
    assert call["offload_weight_update_variables"] is False
    assert call["reduction_method"].name == "RUNNING_MEAN"
    assert (call["gradient_accumulation_count"], call["repeat_count"]) == (2, 2)
    for direction in ("forward", "backward"):
        planned = [
            stage.get_proto() for stage in call[f"{direction}_propagation_stages_poplar_options"]
        ]
        shares = [
            tuple(part[kind]["availableMemoryProportion"] for kind in ("convolutions", "matmuls"))
            for part in planned
        ]
        assert shares == [("0.1", "0.2"), ("0.3", "0.4"), ("0.5", "0.605")]
        assert all(part["convolutions"]["gatherConvOutput"] == "true" for part in planned)
    assert given("IPUInfeedQueue.__init__")["prefetch_depth"] == 5
    assert given("reset_ipu_seed") == {"seed": 3, "experimental_identical_replicas": True}
    facts = made.describe()["options"]
    assert (facts["device_mapping"], facts["shards"]) == ([0, 0, 1], 2)
    for name in ("stochastic_rounding", "nanoo", "scheduling_algorithm", "prefetch_depth"):
        assert facts[name] == getattr(config, name)
    made.close()


def test_ipus_are_attached_and_round_as_configured() -> None:
    assert "device_connection.type" not in settings_of(SMALL, device=IpuModelDevice())
    compiled = settings_of(replace(SMALL, compile_only=True))
    assert compiled["device_connection.type"] == "PRE_COMPILE"
    stable = "experimental.enable_prng_stability"
    assert stable not in settings_of(SMALL)
    assert "floating_point_behaviour.esr" not in settings_of(
        replace(SMALL, stochastic_rounding="OFF")
    )
    # Replicas that round identically share one seed.
    config = replace(SMALL, stochastic_rounding="RI", replicas=2)
    assert settings_of(config)[stable] is settings_of(replace(SMALL, seed=1))[stable] is True
    made = step_of(config)
    assert given("reset_ipu_seed") == {"seed": 0, "experimental_identical_replicas": True}
    made.close()
    assert stable not in settings_of(config, training=False)  # it rounds to nearest


# --- replicas and instances ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reduced_by", "changes"),
    [("hosts", {"ckpt_all_instances": True}), ("IPUs", {}), ("hosts", PAIR), ("IPUs", PAIR)],
    ids=["loop-hosts", "loop-IPUs", "pipe-hosts", "pipe-IPUs"],
)
def test_instances_average_what_they_log_and_save_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: Dict[str, Any], reduced_by: str
) -> None:
    config = replace(
        SMALL,
        replicas=4,
        instances=2,
        ckpts_per_epoch=Fraction(2),
        accelerator_side_reduction=reduced_by == "IPUs",
        pipeline_validation_model=True,
        checkpoint_output_dir=str(tmp_path),
        **changes,
    )
    config.check()
    start(monkeypatch, 1, 2, 4, config.shards)
    made = step_of(config)
    made.compile()
    assert recorder.configured["experimental.enable_prng_stability"] is True
    engine = recorder.configured["compilation_poplar_options"]
    assert engine == {"target.deterministicWorkers": "portable"}
    assert given("reset_ipu_seed")["experimental_identical_replicas"] is True
    assert given("PopDistStrategy.__init__") == {"add_ipu_cross_replica_reductions": False}
    assert given("set_ipu_config")["ipus_per_replica"] == config.shards
    (queue,) = recorder.queues
    assert int(queue._taken.numpy()) == 2 * 2 * 2  # updates, micro batches, own replicas
    reduced = [how["reduce_op"].name for name, how in recorder.calls if name.endswith(".reduce")]
    assert reduced == (["MEAN"] if reduced_by == "hosts" else [])
    of_means = [how for name, how in recorder.calls if name == "cross_replica_mean"]
    groups = [how.get("replica_group_size") for how in of_means]
    weights = len(made.program.update.variables)
    shown = [group for group in groups if group]
    if config.shards > 1:
        assert len(groups) > weights if reduced_by == "IPUs" else len(groups) % weights == 0
    else:
        assert shown == ([] if reduced_by == "IPUs" else [2, 2])  # loss, correct predictions
    assert np.isfinite(made.program.loss)
    assert 0 <= made.program.accuracy <= 1
    assert made.progress.counters()["checkpoints"] == 1
    saves = config.ckpt_all_instances
    assert [path.name for path in tmp_path.iterdir()] == ["instance-1"] * saves
    assert saves or made.progress.checkpoints_to_validate() == [None]
    made.close()


def test_instances_need_the_sdk_that_has_their_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, 1, 2, 2, 1)
    monkeypatch.setitem(sys.modules, next(iter(double.strategies())), None)
    with pytest.raises(DeviceError, match="Poplar SDK 3.0"):
        step_of(replace(SMALL, replicas=2, instances=2))


def test_an_instance_without_checkpoints_validates_the_first_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hosts add up weights, which are zero except in the first instance."""
    start(monkeypatch, 1, 2, 2, 1)
    made = step_of(replace(SMALL, replicas=2, instances=2))
    made.compile()
    made()
    strategy = made.program._strategy
    recorder.calls.clear()
    (found,) = made.finish().facts["validation"]
    sums = [how for name, how in recorder.calls if name == "PopDistStrategy.reduce"]
    assert {how["reduce_op"].name for how in sums} == {"SUM"}
    assert all(float(np.abs(how["value"]).max()) == 0 for how in sums)
    assert found["images"] == VALIDATED
    # A process has one strategy: validation uses training's, and popdist.init() is not called
    # again.
    assert "PopDistStrategy.__init__" not in recorder.names()
    assert popdist_strategy() is strategy
    # One replica's correct predictions, counted for each replica of the job.
    assert given("cross_replica_sum")
    made.close()


def test_validation_alone_by_instances_has_its_own_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each IPU validates a pipelined model: 2 IPUs x 4 replicas hold 8 copies."""
    config = replace(SMALL, **PIPELINE, training=False, replicas=4, instances=2)
    assert poprun_words(config) == "--num-replicas=8 --num-instances=2 --ipus-per-replica=1"
    pipelined = replace(config, pipeline_validation_model=True)
    assert poprun_words(pipelined) == "--num-replicas=4 --num-instances=2 --ipus-per-replica=2"
    with pytest.raises(ValueError, match="instances=3"):
        replace(config, instances=3).check()
    start(monkeypatch, 1, 2, 8, 1)
    assert under_poprun(config, poprun_job()) == config
    made = step_of(config)
    assert given("set_ipu_config")["ipus_per_replica"] == 1
    assert recorder.attached == 4
    made.compile()
    (found,) = made.finish().facts["validation"]
    assert found["images"] == VALIDATED
    made.close()
    # Of 22 images each instance has 11, and its 4 replicas take 4 at a time.
    single: Any = replace(config, micro_batch_size=1)
    runtime: Any = TensorFlowIpu(HARDWARE)
    given_to = (single.classifier(), single, feed_of(single, False))
    assert runtime.application(*given_to, None).batches_per_step == 3


def poprun_words(config: Application) -> str:
    """Return poprun's numbers."""
    config.check()
    (_, _, *words) = plan(config, "ipu", ()).launcher.arguments
    known = description("popdist.json")["poprun"]["options"]
    assert {word.partition("=")[0] for word in words} <= set(known)
    return " ".join(words[:3])


def test_poprun_settings_win_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = replace(POD16["resnet56_16ipus_8k_bn_pipeline"], instances=4)
    assert poprun_words(preset) == "--num-replicas=4 --num-instances=4 --ipus-per-replica=4"
    with pytest.warns(UserWarning) as caught:
        config = under_poprun(replace(SMALL, validation_num_replicas=3), Job(8, 4, 1))
    assert (config.replicas, config.instances, config.validation_num_replicas) == (8, 4, 8)
    assert len(caught) == 3
    assert config.batches.global_batch_size == BATCH * 2 * 8
    validating = replace(SMALL, **PIPELINE, training=False, replicas=3, instances=2)
    with pytest.warns(UserWarning):
        fewer = under_poprun(validating, Job(4, 2, 1))
    assert (fewer.validation_batches.replicas, fewer.validation_shards) == (4, 1)
    assert fewer.images_per_batch == 4 * BATCH
    start(monkeypatch, 0, 2, 4, 1)
    assert poprun_job() == Job(4, 2, 1)
    same = replace(SMALL, replicas=4, instances=2)
    assert under_poprun(same, poprun_job()) == same
    monkeypatch.setitem(sys.modules, "popdist", None)
    assert under_poprun(same, poprun_job()) is same


@pytest.mark.parametrize(
    ("changes", "job", "name"),
    [
        (
            {"ckpt_all_instances": True, "ckpts_per_epoch": Fraction(0)},
            Job(4, 4, 1),
            "ckpts_per_epoch",
        ),
        (PIPELINE, Job(4, 4, 2), "pipeline_validation_model"),
        ({**PIPELINE, "validation": False}, Job(4, 4, 1), "--ipus-per-replica=1"),
        ({**PIPELINE, "training": False}, Job(4, 2, 2), "--ipus-per-replica=2"),
        ({"dbn_replica_group_size": 3}, Job(4, 2, 1), "replicas=4"),
    ],
)
def test_impossible_options_under_poprun_are_one_message(
    changes: Dict[str, Any], job: Job, name: str
) -> None:
    with pytest.raises(CaseError, match=name), pytest.warns(UserWarning):
        under_poprun(replace(SMALL, **changes), job)


# --- cleanup ---------------------------------------------------------------------------------


def test_training_and_validation_share_the_chosen_group() -> None:
    device = IpuDevice(5)
    recorder.groups[5] = 2
    config = replace(SMALL, replicas=2, validation_num_replicas=1)
    with pytest.raises(OptionError, match="--device-id=5 .*validation_num_replicas"):
        step_of(config, device)
    assert not recorder.names()
    step_of(replace(config, validation_num_replicas=0), device).close()
    step_of(replace(config, validation=False), device).close()
    step_of(config, HARDWARE).close()


def test_a_failure_is_one_message_and_releases_the_ipus(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 4, {"weights/0/other": np.zeros(3)}, {"epoch": 1.0})
    config = replace(SMALL, checkpoint_input_dir=str(tmp_path))
    step: Any = TensorFlowIpu(HARDWARE).application(
        config.classifier(), config, feed_of(config), lambda: feed_of(config)
    )
    with pytest.raises(CaseError, match=f"{tmp_path}.*another network"):
        step.build()
    step.close()
    assert not recorder.attached
    # IPUs on demand are attached by the first run.
    recorder.attach_error = "could not find"
    made = step_of(replace(SMALL, on_demand=True))
    with pytest.raises(CaseError, match="could not find"):
        made.compile()
    made.close()
