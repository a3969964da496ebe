"""Training on IPUs: configurations, the result of an update, failures.

The SDK is the stand-in of ``tests/doubles``, over the TensorFlow that is installed.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_training.bench_cnn_tensorflow import M2000, POD16
from ipubench.bench_training.training import Training
from ipubench.fixtures.case.errors import CaseError, DataError
from ipubench.fixtures.data.imagenet.shards import find_shards
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.ipu import IpuDevice, IpuModelDevice
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
from ipubench.fixtures.runtimes.step import ask
from ipubench.fixtures.runtimes.tensorflow import images
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.ipu import program, training
from ipubench.fixtures.runtimes.tensorflow.ipu.tensorflow_ipu import TensorFlowIpu
from ipubench.fixtures.runtimes.tensorflow.ipu.training import TrainingProgram
from ipubench.models.tensorflow.cnn.run import ForwardPass
from tests.doubles.tensorflow_ipu import recorder
from tests.support.tensorflow_cnn import draw_nothing, network
from tests.support.tensorflow_ipu import (
    BATCH,
    HARDWARE,
    SIZE,
    SPLITS,
    SYNTHETIC,
    batches,
    feed,
    given,
    install,
    start_instance,
    use_batches,
    values,
)

pytestmark = pytest.mark.framework
#: Images are mixed only if a case has real ones.
MIXED: Dict[str, Any] = {"data": "real", "mixup_alpha": 0.2, "cutmix_lambda": 0.85}


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    return install(monkeypatch)


def options(shards: int = 2, **changes: Any) -> Training:
    """Return a configuration with a constant rate and two updates per call."""
    config = Training(
        name="small",
        system="ipu",
        data="generated",
        precision="32.32",
        shards=shards,
        pipeline=shards > 1,
        pipeline_splits=SPLITS[shards],
        micro_batch_size=BATCH,
        gradient_accumulation_count=2,
        batches_per_step=2,
        abs_learning_rate=0.05,
        warmup_epochs=0.0,
        weight_decay=0.01,
        optimiser="momentum",
    )
    return replace(config, **changes)


def step(
    config: Training,
    norm: str = "group",
    keep: float = 1.0,
    mode: str = "generated",
    device: IpuDevice = HARDWARE,
) -> TrainingProgram:
    return TensorFlowIpu(device).training(network(norm, keep), config, feed(mode, training=True))


def ready(*args: Any, **kwargs: Any) -> TrainingProgram:
    made = step(*args, **kwargs)
    made.build()
    assert made.compile() is True
    return made


# --- the result of an update -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("shards", "changes"),
    [
        (2, {"optimiser": "momentum", "weight_avg_exp": 0.9, "label_smoothing": 0.1}),
        (1, {"optimiser": "LARS"}),
        pytest.param(
            *(1, {"optimiser": "SGD", "gradient_accumulation_count": 1}), marks=pytest.mark.nightly
        ),
    ],
    ids=lambda value: value["optimiser"] if isinstance(value, dict) else str(value),
)
def test_updates_agree_with_a_host(
    monkeypatch: pytest.MonkeyPatch, shards: int, changes: Dict[str, Any]
) -> None:
    use_batches(monkeypatch)
    config = options(shards, **changes)
    made = ready(config)
    assert_offloaded(made, config.gradient_accumulation_count > 1)
    made()
    host_config = replace(config, system="host", shards=1, pipeline=False, pipeline_splits=())
    host = TensorFlowHost(CpuDevice(pin=False)).training(
        network(), host_config, feed(training=True)
    )
    host.build()
    start = values(host.classifier.variables)
    host.compile()
    host.run(2)
    loss = host.run(2)
    assert made.updates == host.updates == 4
    assert made.loss == pytest.approx(loss, rel=1e-4)
    ours, theirs = made.classifier.variables, host.classifier.variables
    for before, mine, other in zip(start, values(ours), values(theirs)):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=2e-5)
        assert np.abs(mine - before).max() > 1e-4
    if config.weight_avg_exp:
        averages = zip(values(made.update.averages.averages), values(host.update.averages.averages))
        for mine, other in averages:
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=2e-5)
    assert "cross_replica_mean" not in recorder.names()  # there is one replica
    host.close()
    # Closing deletes the queues (a pipeline has two) and releases the IPUs, once.
    made.close()
    names = recorder.names()
    queues = ["IPUInfeedQueue.deleter", *["IPUOutfeedQueue.deleter"] * config.pipeline]
    assert names[-1 - len(queues) :] == [*queues, "reset_ipu_configuration"]
    assert made.classifier is None
    made.close()
    assert recorder.names() == names


def assert_offloaded(made: TrainingProgram, offloaded: bool) -> None:
    """Check that the SDK's option and the record agree on offloading variables."""
    assert made.describe()["options"]["variable_offloading"] is offloaded
    names = ("pipeline", "GradientAccumulationOptimizerV2.__init__")
    given = [how["offload_weight_update_variables"] for of, how in recorder.calls if of in names]
    assert any(given) == offloaded


@pytest.mark.parametrize("shards", [1, 2])
def test_moving_averages_move_once_per_update_by_the_mean_statistics(
    monkeypatch: pytest.MonkeyPatch, tf: Any, shards: int
) -> None:
    use_batches(monkeypatch)
    config = options(shards, batches_per_step=1, loss_scaling=64.0)
    made = step(config, norm="batch")
    made.build()
    found: List[List[Any]] = []
    for pixels, labels in zip(*batches(config.gradient_accumulation_count)):
        run = ForwardPass(training=True)
        inputs, _ = config.prepare(tf, pixels, labels, None, None, tf.float32)
        made.classifier(inputs, run)
        found.append([value.numpy() for _, *parts in run.statistics for value in parts])
    norms = [norm for norm, _, _ in run.statistics]
    made.compile()
    moving = values(v for norm in norms for v in (norm.moving_mean, norm.moving_variance))
    assert len(moving) == 6
    for number, moved in enumerate(moving):
        mean = np.mean([batch[number] for batch in found], axis=0)
        start = number % 2  # means start at 0, variances at 1
        np.testing.assert_allclose(moved, start + 0.1 * (mean - start), rtol=1e-3, atol=1e-5)


def test_mixing_and_dropout_agree_between_a_pipeline_and_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_batches(monkeypatch)
    losses = []
    for shards in (1, 2):
        config = options(shards, batches_per_step=1, **MIXED)
        made = TensorFlowIpu(HARDWARE).training(network(keep=0.5), config, feed(training=True))
        made.build()
        made.compile()
        losses.append(made.loss)
        made.close()
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_every_batch_has_its_own_seed_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    for index in range(2):
        start_instance(monkeypatch, index, instances=2, replicas=2, ipus=2)
        config = options(2, replicas=2, instances=2, seed=5, data="real", mixup_alpha=0.2)
        made = TensorFlowIpu(HARDWARE).training(network(), config, feed(training=True))
        made.build()
        (queue,) = recorder.queues[-1:]
        images, labels, seed, _ = queue._dataset.element_spec
        assert (images.shape, images.dtype.name) == ((BATCH, SIZE, SIZE, 3), "uint8")
        assert (labels.shape, labels.dtype.name) == ((BATCH,), "int32")
        assert (seed.shape, seed.dtype.name) == ((2,), "int32")
        elements = list(queue._dataset.take(3))
        shares = [shares.numpy() for *_, shares in elements]
        assert all(part.shape == (BATCH,) and (part >= 0.5).all() for part in shares)
        assert not np.array_equal(shares[0], shares[1])
        seeds += [tuple(seed.numpy()) for _, _, seed, _ in elements]
        made.close()
    assert sorted(seeds) == [(5, number) for number in range(6)]


def test_16_bits_compute_on_float32_variables() -> None:
    made = ready(options(2, precision="16.32", batches_per_step=1))
    facts = made.describe()
    assert (facts["precision"], facts["variables"]) == ("float16", "float32")
    assert {v.dtype.name for v in made.classifier.variables} == {"float32"}
    assert np.isfinite(made.loss)


def test_synthetic_data_compiles_for_xla_and_returns_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    config = options(2, batches_per_step=1, **MIXED)
    made = TensorFlowIpu(HARDWARE).training(network(keep=0.5), config, feed("synthetic"))
    made.build()
    made.compile()
    assert recorder.flags == SYNTHETIC
    (queue,) = recorder.queues
    assert int(queue._taken.numpy()) == 0
    assert np.isnan(made.loss)
    assert made.counters() == {"weight_updates": 1, "learning_rate": config.rate(0)}


def test_the_rate_is_that_of_the_first_update_of_a_call() -> None:
    config = options(
        1, epochs=1.0, warmup_epochs=0.5, micro_batch_size=1000, gradient_accumulation_count=1
    )
    made = ready(config)
    rates = [made._arguments()[0].numpy()]
    made()
    rates.append(made._arguments()[0].numpy())
    assert rates == pytest.approx([config.rate(2), config.rate(4)], rel=1e-6)
    assert rates[0] < rates[1]
    # A record describes the step before its first update; both updates of the last call had one
    # rate.
    last = config.rate(2)
    assert made.counters() == {"weight_updates": 4, "learning_rate": last, "loss": made.loss}
    made.loss = math.nan  # training diverged, which the end of the run reports
    assert made.counters()["loss"] is None


# --- configurations --------------------------------------------------------------------------

PUBLISHED = {
    # Units of the stages after the first; updates per call and per run on M2000 and POD16.
    "resnet50": (["b1/2/relu", "b2/3/relu", "b3/3/relu"], (4, 78), (4, 78)),
    "resnext101": (["b3/3/relu"], (104, 3336), (104, 3336)),
    "efficientnet-b4": (["block2b", "block4b", "block6c"], (104, 3336), (104, 1668)),
    "efficientnet-b4-g16": (["block2c", "block4c", "block6a"], (400, 12810), (100, 1601)),
}


def pipeline_call(made: TrainingProgram) -> Dict[str, Any]:
    """Return the arguments of the pipeline of a program that is built but not run."""
    recorder.only_arguments = True
    made._run = made._tf.function(made._program, autograph=False, jit_compile=True)
    made._execute()
    arguments: Dict[str, Any] = recorder.arguments("pipeline")
    return arguments


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_published_configuration_becomes_a_pipeline(
    monkeypatch: pytest.MonkeyPatch, tf: Any, model: str
) -> None:
    """On both systems; the network is built once without its weights, because it never runs."""
    draw_nothing(monkeypatch)
    monkeypatch.setattr(training, "WeightUpdate", lambda *_: None)

    @lru_cache(maxsize=None)
    def built(dtype: Any) -> Any:
        return M2000[model].classifier()(tf, dtype=dtype)

    def network(tf: Any, dtype: Any, group_norm: Any) -> Any:
        return built(dtype)

    firsts, *of_systems = PUBLISHED[model]
    assert M2000[model].network == POD16[model].network
    for configs, (updates, total) in zip((M2000, POD16), of_systems):
        install(monkeypatch)
        config = replace(configs[model], data="generated")
        config.check()
        chosen: Dict[str, Any] = {"auto_select_ipus": 4}
        if config.instances > 1:
            start_instance(monkeypatch, 1, config.instances, config.replicas, config.shards)
            chosen = {
                "select_ipus": 7,
                "experimental.multi_replica_distribution.process_index": 1,
                "experimental.multi_replica_distribution.process_count": config.instances,
            }
        small = feed(training=True, normalise_input=config.normalise_input)
        made = TensorFlowIpu(HARDWARE).training(network, config, small)
        made.build()
        call = pipeline_call(made)
        assert len(call.pop("computational_stages")) == config.shards == len(firsts) + 1
        assert [units[0].name for units in made._stages[1:]] == firsts
        for passed in ("inputs", "infeed_queue", "outfeed_queue", "optimizer_function"):
            assert call.pop(passed)
        assert call.pop("pipeline_schedule").name == "Grouped"
        assert call.pop("recomputation_mode").name == "Auto"
        assert call.pop("reduction_method").name == "MEAN"
        assert call == {
            "gradient_accumulation_count": config.gradient_accumulation_count,
            "repeat_count": updates,
            "forward_propagation_stages_poplar_options": None,
            "backward_propagation_stages_poplar_options": None,
            "offload_weight_update_variables": False,
            "accumulate_outfeed": True,
            "accumulate_outfeed_dtype": tf.float32,
            "outfeed_mask": [False, True],
        }
        assert made.batches_per_step == updates
        assert ask(made.rounds.most) == total // updates - 3
        assert recorder.attached == config.shards * config.replicas // config.instances
        convolutions = {"partialsType": "half"}
        if config.model != "resnext":
            convolutions["availableMemoryProportion"] = "0.15"
        if config.model == "efficientnet":
            convolutions["enableConvDithering"] = "true"
        found = dict(recorder.configured)
        assert found.pop("floating_point_behaviour.esr").name == "ON"
        assert found == {
            **chosen,
            "allow_recompute": True,
            "convolutions.poplar_options": convolutions,
            "matmuls.poplar_options": {"partialsType": "half"},
            "norms.use_stable_statistics": True,
            "compilation_poplar_options": {
                "target.deterministicWorkers": "false",
                "opt.internalExchangeOptimisationTarget": "balanced",
            },
            "optimizations.maximum_cross_replica_sum_buffer_size": 10 << 20,
            "floating_point_behaviour.nanoo": True,
        }
        made.close()
        assert not recorder.attached


def test_two_proportions_per_shard_apply_to_the_stages() -> None:
    shares = (0.1, 0.2, 0.3, 0.4)
    made = step(options(2, available_memory_proportion=shares, enable_half_partials=True, seed=3))
    made.build()
    call = pipeline_call(made)
    for direction in ("forward", "backward"):
        stages = call[f"{direction}_propagation_stages_poplar_options"]
        found = [stage.get_proto() for stage in stages]
        for kind, of_kind in (("convolutions", ("0.1", "0.3")), ("matmuls", ("0.2", "0.4"))):
            assert [part[kind] for part in found] == [
                {"partialsType": "half", "availableMemoryProportion": share} for share in of_kind
            ]
    assert recorder.configured["convolutions.poplar_options"] == {"partialsType": "half"}
    engine = recorder.configured["compilation_poplar_options"]
    assert engine["target.deterministicWorkers"] == "portable"  # with a seed
    made.close()


def test_the_software_model_without_remote_memory_does_not_offload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TF_FLAGS, "--use_ipu_model")
    made = step(options(2), device=IpuModelDevice())
    made.build()
    # None lets the SDK offload if it can; True fails if it cannot.
    assert pipeline_call(made)["offload_weight_update_variables"] is None
    assert_offloaded(made, False)
    made.close()


def test_options_that_differ_from_the_published_ones() -> None:
    config = options(
        1,
        no_stochastic_rounding=True,
        fp_exceptions=True,
        max_cross_replica_buffer_size=1,
        scheduling_algorithm="SHORTEST_PATH",
        num_io_tiles=64,
        disable_variable_offloading=True,
        replicas=2,
    )
    made = ready(config)
    assert_offloaded(made, False)
    assert made.describe()["options"]["pipeline_schedule"] is None  # one stage has no order
    found = recorder.configured
    for name in ("inv", "oflo", "div0"):
        assert found[f"floating_point_behaviour.{name}"] is True
    assert "floating_point_behaviour.esr" not in found  # off is the default
    assert found["optimizations.maximum_cross_replica_sum_buffer_size"] == 1
    assert found["scheduling.algorithm"].name == "SHORTEST_PATH"
    assert found["io_tiles.num_io_tiles"] == 64
    assert found["io_tiles.place_ops_on_io_tiles"] is True
    accumulation = given("GradientAccumulationOptimizerV2.__init__")
    assert accumulation["num_mini_batches"] == config.gradient_accumulation_count
    assert accumulation["offload_weight_update_variables"] is False
    assert accumulation["reduction_method"].name == "MEAN"
    assert given("repeat")["n"] == 2 * config.gradient_accumulation_count
    # Replicas average their gradients, once per variable each time that the update is traced, and
    # read separate batches.
    averaged = recorder.names().count("cross_replica_mean")
    assert averaged > 0 == averaged % len(made.classifier.trainable_variables)
    (queue,) = recorder.queues
    assert int(queue._taken.numpy()) == 2 * 2 * 2


# --- instances and cleanup -------------------------------------------------------------------


def test_replicas_of_other_instances_are_averaged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: List[Tuple[int, int]] = []

    def pipeline_of(feed: Any) -> Any:
        parts.append((feed.instance, feed.instances))
        return images.pipeline_of(feed)

    monkeypatch.setattr(program, "pipeline_of", pipeline_of)
    start_instance(monkeypatch, 1, instances=2, replicas=2, ipus=2)
    made = ready(options(2, replicas=2, instances=2, batches_per_step=1))
    assert parts == [(1, 2)]  # each instance reads its share of the data
    assert recorder.replicas == 1
    assert "cross_replica_mean" in recorder.names()
    assert given("set_ipu_config")["ipus_per_replica"] == 2
    assert made.describe()["options"]["instances"] == 2
    assert made.describe()["ipus"] == 4
    made.close()


def test_instances_without_poprun_or_with_another_number_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = step(options(2, replicas=2, instances=2))
    with pytest.raises(CaseError, match="poprun"):
        made.build()
    start_instance(monkeypatch, 0, instances=2, replicas=4, ipus=1)
    with pytest.raises(CaseError, match="--num-replicas=4, .*--ipus-per-replica=1"):
        made.build()
    made.close()
    assert "IPUConfig.configure_ipu_system" not in recorder.names()


def test_an_older_sdk_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow.python.ipu.gradient_accumulation", None)
    with pytest.raises(DeviceError, match="SDK 2.6"):
        step(options())
    assert recorder.attached == 0


def test_an_unknown_split_is_one_message_and_releases_the_ipus() -> None:
    made = step(options(2, pipeline_splits=("b3",)))
    with pytest.raises(CaseError, match="small: .* 'b3' "):
        made.build()
    made.close()
    assert not recorder.attached


def test_compile_only_attaches_to_nothing_and_keeps_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without IPUs the SDK compiles, runs nothing and returns zeros without an error."""
    config = options(2, compile_only=True)
    with pytest.raises(ValueError, match="--executable-cache=DIR"):
        step(config)
    monkeypatch.setenv(TF_FLAGS, f"--executable_cache_path={tmp_path}")
    recorder.attach_error = "there are no IPUs"
    made = step(config, device=IpuDevice(3))  # nor one of that number
    made.build()
    found = recorder.configured
    assert found["auto_select_ipus"] == 2
    assert found["device_connection.type"].name == "PRE_COMPILE"
    assert found["device_connection.version"] == "ipu2"
    assert found["device_connection.enable_remote_buffers"] is True
    recorder.run_error = "tile 7 full"
    with pytest.raises(CaseError, match=" 2 IPUs .*: tile 7 full"):
        made.compile()
    recorder.run_error = ""
    assert made.compile() is False  # an earlier executable may have been used
    assert "pipeline" in recorder.names()
    assert recorder.now == 0
    assert made.counters() == {"weight_updates": 0}
    made.close()
    assert recorder.names()[-1] == "reset_ipu_configuration"
    assert "IPUOutfeedQueue.deleter" not in recorder.names()  # the queue is empty


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00001").write_bytes(b"no record at all")
    config = options(1, gradient_accumulation_count=1)
    made = TensorFlowIpu(HARDWARE).training(
        network(),
        config,
        feed("real", training=True, shards=find_shards(tmp_path, "train")),
    )
    made.build()
    with pytest.raises(DataError, match="train-00000-of-00001"):
        made.compile()
    made.close()
