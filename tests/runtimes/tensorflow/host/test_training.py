"""Training on a TensorFlow host: the result of an update, and that it learns."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import product
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_training.bench_cnn_tensorflow import HOST
from ipubench.bench_training.training import Training
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.step import ask
from ipubench.fixtures.runtimes.tensorflow.host.host_step import ALONE_FLOP
from ipubench.fixtures.runtimes.tensorflow.model import RING
from ipubench.models.published import Stage
from ipubench.models.tensorflow.cnn import blocks
from tests.support.harness import run_code
from tests.support.tensorflow_cases import record_folder, small, trained, weights

pytestmark = pytest.mark.framework
pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TFRecords of 24 training and 24 validation images in three colours."""
    return record_folder(tmp_path_factory.mktemp("records"))


def close(found: List[Any], wanted: List[Any], tolerance: float = 2e-5) -> bool:
    """Return whether all arrays agree, relative to the largest value of each."""
    return all(
        np.abs(one - other).max() <= tolerance * max(np.abs(other).max(), 1e-3)
        for one, other in zip(found, wanted)
    )


def updated(config: Any, updates: int = 1, **options: Any) -> Tuple[List[Any], List[Any]]:
    """Return all variables before and after some updates."""
    step = trained(config, **options)
    step._run = step._compiled(step._input.source())
    before = [variable.numpy() for variable in step.classifier.variables]
    step.run(updates)
    after = [variable.numpy() for variable in step.classifier.variables]
    step.close()
    return before, after


def test_micro_batches_accumulate_to_the_gradient_of_one_batch(records: Path) -> None:
    """Four micro batches of 2 images and one of 8 give the same update; mixing changes it."""
    whole: Dict[str, Any] = {
        **{"data": "real", "train_with_valid_preprocessing": True},  # every image once, in order
        **{"abs_learning_rate": 0.1, "weight_decay": 0.0, "micro_batch_size": 8},
        "gradient_accumulation_count": 1,
    }
    parts = {**whole, "micro_batch_size": 2, "gradient_accumulation_count": 4}
    mixed = {**whole, "mixup_alpha": 0.2, "cutmix_lambda": 0.85}
    moved = []
    for options in (whole, parts, mixed):
        before, after = updated(small(**options), shards=records)
        assert not close(after, before, 1e-4)
        moved.append([now - then for now, then in zip(after, before)])
    assert close(moved[1], moved[0], 2e-3)
    assert not close(moved[2], moved[0], 2e-3)


def test_recomputation_changes_no_update() -> None:
    """Without stored activations, weights, moving averages and dropout's draws are the same."""
    options = {"abs_learning_rate": 0.1, "data": "generated", "batch_norm": True}
    kept, recomputed = (
        updated(small(**options, xla_recompute=recompute), 2, keep=0.5)[1]
        for recompute in (False, True)
    )
    assert close(recomputed, kept)


MEMORY = """
from ipubench.plugins.record.host_process import PeakMemory
from tests.support.tensorflow_cases import small, trained
options = dict(batch_norm=True, image_size=512, micro_batch_size=8)
for recompute in (True, False):
    step = trained(small(**options, xla_recompute=recompute))
    memory = PeakMemory()
    step.compile()
    step.run(1)
    print("peak", memory.read())
    step.close()
"""


@pytest.mark.nightly
def test_recomputation_takes_less_memory() -> None:
    """The activations of 8 large images take an eighth of a GB, so storing fewer of them shows.

    The update that stores them comes second, so memory left by the first does not help it.
    """
    done = run_code(MEMORY, framework="tensorflow").assert_code(0)
    few, all_of_them = map(int, re.findall(r"^peak (\d+)$", done.text, re.MULTILINE))
    assert all_of_them - few > 56 << 20


def test_the_loss_falls_on_real_images(records: Path) -> None:
    """With augmentation, smoothed labels, mixed images and accumulation it learns colours."""
    config = small(
        batch_norm=True,
        data="real",
        optimiser="momentum",
        abs_learning_rate=0.02,
        gradient_accumulation_count=2,
        micro_batch_size=6,
        label_smoothing=0.05,
        mixup_alpha=0.1,
        cutmix_lambda=0.95,
        weight_avg_exp=0.9,
        eight_bit_io=True,
    )
    step = trained(config, records)
    step.compile()
    first = step.run(1)
    last = min(step.run(5) for _ in range(6))
    step.close()
    assert first > 5  # nearly the logarithm of 1000 classes
    assert last < 1.5  # chance among the three colours is 1.1, and labels are smoothed


@pytest.mark.parametrize("precision", ["16.16", "16.32"])
def test_sixteen_bits_train_as_thirty_two(precision: str) -> None:
    """Losses of the first updates agree with float32's; variables have the master's dtype."""
    options = {"abs_learning_rate": 0.02, "data": "generated", "batch_norm": True}
    losses = {}
    for bits in (precision, "32.32"):
        step = trained(small(precision=bits, **options))
        step._run = step._compiled(step._input.source())
        losses[bits] = [step.run(1) for _ in range(3)]
        described = step.describe()
        masters = {variable.dtype.name for variable in step.classifier.trainable_variables}
        assert masters == {described["variables"]}
        step.close()
    assert np.allclose(losses[precision], losses["32.32"], rtol=0.05)
    assert losses[precision][2] < losses[precision][0]


def test_the_rate_follows_the_schedule_update_by_update() -> None:
    """An SGD update with rate 0 changes nothing; the schedule continues in the next call."""
    config = small(optimiser="SGD", abs_learning_rate=0.1, warmup_epochs=1.0, epochs=2.0)
    step = trained(config)
    step._run = step._compiled(step._input.source())
    before = weights(step)
    step.run(1)  # warm-up begins at 0
    assert close(weights(step), before, 1e-7)
    step.run(3)
    assert step.updates == 4
    per_epoch = config.updates_per_epoch
    assert step.describe()["learning_rate"] == pytest.approx([0.0, 0.1 * 4 / per_epoch])
    # A record describes the step before its first update.
    assert step.counters()["learning_rate"] == pytest.approx(0.1 * 3 / per_epoch)
    assert not close(weights(step), before, 1e-7)
    step.close()


def test_weights_are_averaged_after_every_update() -> None:
    """The average follows a = d a + (1 - d) w from the initial weights."""
    step = trained(small(weight_avg_exp=0.5, abs_learning_rate=0.1, data="generated"))
    step._run = step._compiled(step._input.source())
    wanted = weights(step)
    for _ in range(3):
        step.run(1)
        wanted = [0.5 * old + 0.5 * new for old, new in zip(wanted, weights(step))]
    found = [variable.numpy() for variable in step.update.averages.averages]
    assert close(found, wanted)
    step.close()


def test_replicas_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: List[Any] = []
    monkeypatch.setattr(Training, "mixup_coefficients", lambda *given: seeds.append(given[-1]))
    step = trained(small(data="generated"))
    step.feed.instances = 2
    for number, step.feed.instance in product(range(2), repeat=2):
        step.update.draws.assign(number)
        step.update._micro_batch(step._input.take())
    assert len({tuple(seed.numpy()) for seed in seeds}) == 4
    step.close()


def test_flop_are_those_of_the_published_network() -> None:
    """ResNet-50: 4.09 G multiply-adds forward, three times that with the backward pass."""
    config = small(model_size="50", image_size=224, micro_batch_size=1, batch_norm=True)
    step = trained(config, own_network=True)
    flops, traffic = step.flops_per_item(), ask(step.work.weight_traffic)
    step.close()
    assert flops is not None
    # 25.6 million weights in float32, read and written.
    assert traffic == pytest.approx(2 * 4 * 25.557e6, rel=1e-3)
    first = 2 * 112 * 112 * 64 * 7 * 7 * 3
    assert flops == pytest.approx(3 * 2 * 4.089e9 - first, rel=2e-3)


def test_a_damaged_shard_is_one_message(tmp_path: Path) -> None:
    """The case fails and names the file, whenever it reads the damage."""
    shards = record_folder(tmp_path)
    (damaged,) = shards.glob("train-00001-of-00002")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(bytes(content))
    step = trained(small(data="real", eight_bit_io=True), shards)
    with pytest.raises(CaseError, match="train-00001-of-00002"):
        step.compile()
        for _ in range(6):
            step.run(1)
    step.close()


def test_halves_are_the_loader_alone_and_the_updates_alone(records: Path) -> None:
    """Both halves run, in updates; without a pipeline there are none.

    The second half makes calls of several updates, like the measurement, but not all of a long
    call.
    """
    step = trained(small(data="real", gradient_accumulation_count=2), records)
    step.compile()
    parts: Any = None
    amounts = []
    for step.batches_per_step in (10**9, 1, 3):
        parts = ask(step.loading.halves)
        amounts.append([part.amount for part in parts])
    most = ALONE_FLOP / (step.flops_per_item() * step.feed.batch_size * 2)
    assert most > 3  # the network is small
    assert amounts == [[1.0, math.floor(most)], [1.0, 1.0], [1.0, 3.0]]
    before = step.updates
    for part in parts:
        part.prepare()
        part.run()
    assert step.updates == before + 3  # the second half really trains
    assert math.isfinite(step.loss)
    assert step._run.experimental_get_tracing_count() == 1  # with the measured program
    labels = [step._input.take()[1].numpy().tolist() for _ in range(2 * RING)]
    assert labels[:RING] == labels[RING:]  # for images that stay in memory
    step.close()
    assert trained(small()).loading.halves is None


# Every kind of layer and block, but fewer of them: tracing hundreds of layers takes half a minute.
# Of a ResNeXt the first block has what a ResNet lacks. An EfficientNet with batch norms adds no new
# layer.
FEWER_BLOCKS: Dict[str, Dict[str, Any]] = {
    "resnet50": {"model_size": "14"},
    "resnext101": {"model_size": "26"},
    "efficientnet-b4-g16": {"depth_coefficient": 1.0},
}


@pytest.mark.numeric
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "resnet50" else pytest.mark.nightly)
        for name in FEWER_BLOCKS
    ],
)
def test_every_kind_of_network_takes_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On small images, with all options of its line; the weights change and stay finite."""
    monkeypatch.setitem(blocks.BOTTLENECK, "14", (2, 1))
    monkeypatch.setitem(blocks.BOTTLENECK, "26", (1,))
    # The second block adds its input.
    stages = (Stage(1, 3, 2, 16, expands=False), Stage(1, 5, 1, 16))
    monkeypatch.setattr(blocks, "STAGES", stages)
    options: Dict[str, Any] = {"data": "generated", "image_size": 32, "micro_batch_size": 2}
    options.update(precision="32.32", warmup_epochs=0.0, abs_learning_rate=1e-3)
    config = dataclasses.replace(HOST[name], **FEWER_BLOCKS[name], **options)
    step = trained(config, own_network=True)
    before = weights(step)
    step.compile()
    # Compiling makes no update, which may take seconds.
    assert step.updates == 0 and all(map(np.array_equal, weights(step), before))
    assert math.isfinite(step.run(1))
    after = weights(step)
    assert all(np.isfinite(values).all() for values in after)
    # At first the last norm of most ResNet blocks is zero, so nothing before it has a gradient.
    moved = sum(not np.array_equal(one, other) for one, other in zip(after, before))
    assert moved > 0.3 * len(after)
    assert not np.array_equal(after[0], before[0])
    step.close()


def test_a_slow_machine_accumulates_fewer_micro_batches() -> None:
    """An update of fewer micro batches equals that of a configuration with as many."""
    options = {"abs_learning_rate": 0.1, "data": "generated", "micro_batch_size": 2}
    step, wanted = (
        trained(small(**options, gradient_accumulation_count=count)) for count in (4, 2)
    )
    micro_batch = 2 * step.flops_per_item()
    assert step.lighten(1.0) == 0.25  # one is left on the slowest machine
    step.takes = 4
    assert step.lighten(4.5 * micro_batch) == 1.0
    assert step.lighten(2.9 * micro_batch) == 0.5
    assert step.describe()["gradient_accumulation"] == 2
    for each in (step, wanted):
        each.compile()
        each.run(1)
    assert close(weights(step), weights(wanted))
    for each in (step, wanted):
        each.close()
