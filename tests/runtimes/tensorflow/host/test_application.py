"""The application on a host: device calls, host events, stopping and resuming."""

from __future__ import annotations

import json
import logging
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.rules import settled
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.tfds import pipeline
from ipubench.fixtures.data.tfds.find import PreparedSplit, find_prepared
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.step import ask
from ipubench.fixtures.runtimes.tensorflow.application import checkpoints
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.models.tensorflow.cnn.run import ForwardPass
from tests.support.examples import learnable_cifar
from tests.support.tensorflow_cases import nothing

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")

# A call has 2 weight updates of 2 micro batches, a log line and, every other time, a checkpoint.
SMALL: Dict[str, Any] = {
    "name": "small",
    "model_name": "toy_model_bn",
    "precision": "32.32",
    "data": "generated",
    "micro_batch_size": 4,
    "gradient_accumulation_count": 2,
    "weight_updates_per_epoch": 4,
    "num_epochs": 2,
    "logs_per_epoch": Fraction(2),
    "ckpts_per_epoch": Fraction(1),
    "optimizer_params": Parameters({"momentum": 0.9}),
    "lr_schedule": "cosine",
    "lr_schedule_params": Parameters({"initial_learning_rate": 2e-3, "epochs_to_total_decay": 2}),
}


def small(**options: Any) -> Application:
    """Return a small configuration."""
    return Application(**{**SMALL, **options})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10's layout, with 50 images for training and 21 for validation."""
    folder = tmp_path_factory.mktemp("data")
    learnable_cifar(folder, 50, 21)
    return folder


def real_run(folder: str, **options: Any) -> Tuple[Application, Data]:
    """Return a training configuration on such images, and a function that opens its feeds."""
    config = settled(small(data="real", deterministic=True, **options))
    return config, data_in(Path(folder))


def data_in(folder: Path, part: Tuple[int, int] = (0, 1)) -> Data:
    """Return a function that opens the feeds of a folder of small data sets."""
    return Data(lambda kind, *names: found_in(folder, *names), part)


def found_in(folder: Path, dataset: str, split: str) -> PreparedSplit:
    """Return an existing split."""
    found = find_prepared(folder, dataset, split)
    assert found is not None
    return found


def step_of(config: Application, data: Any = None) -> Any:
    """Return a configuration's step on this machine's CPU, built and compiled."""
    data = data or Data(nothing)
    step = TensorFlowHost(CpuDevice()).application(
        config.classifier(),
        config,
        config.feed(data),
        config.validation_feed(data),
    )
    step.build()
    step.compile()
    return step


def updates_in(caplog: pytest.LogCaptureFixture) -> List[int]:
    """Return the updates of the log lines."""
    return [int(number) for number in re.findall(r"batch (\d+): ", caplog.text)]


def accuracy_of(classifier: Any, config: Application, data: Data) -> Tuple[float, int]:
    """Return (share of correct predictions, images) for one pass through an unfolded network."""
    feed = config.validation_feed(data)()
    right = images = 0
    for pixels, labels in pipeline.dataset(tf, feed, "float32"):
        answers = tf.argmax(classifier(pixels, ForwardPass(training=False)), 1, tf.int32)
        right += int(tf.reduce_sum(tf.cast(answers == labels, tf.int32)))
        images += int(tf.reduce_sum(tf.cast(labels < feed.classes, tf.int32)))
    return right / images, images


class Finished(NamedTuple):
    """An uninterrupted run: the result of each call, the final state and validation."""

    losses: List[float]
    accuracies: List[float]
    state: List[Any]
    validation: List[Dict[str, Any]]
    checkpoints: Path


@pytest.fixture(scope="module")
def finished(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A complete run with its checkpoints."""
    folder = tmp_path_factory.mktemp("checkpoints")
    config, data = real_run(str(dataset), checkpoint_output_dir=str(folder), clean_dir=False)
    step = step_of(config, data)
    losses, accuracies, wanted = [], [], []
    for _ in range(4):
        step()
        losses.append(step.program.loss)
        accuracies.append(step.program.accuracy)
        if step.program.updates % 4 == 0:
            wanted.append(accuracy_of(step.program.classifier, config, data))
    state = [variable.numpy() for variable in step.program.state().values()]
    validation = step.finish().facts["validation"]
    step.close()
    # Values of the unfolded network on all images without padding.
    assert [(found["accuracy"], found["images"]) for found in validation] == wanted
    assert [(found["weights"], found["epoch"]) for found in validation] == [
        ("checkpoint-00000004.npz", 1.0),
        ("checkpoint-00000008.npz", 2.0),
    ]
    json.dumps(validation, allow_nan=False)
    return Finished(losses, accuracies, state, validation, folder)


def test_a_call_runs_the_updates_up_to_the_next_host_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs every 2 updates, checkpoints every 4; calls after the end of the run make neither."""
    config = small(checkpoint_output_dir=str(tmp_path), validation=False)
    step = step_of(config)
    assert (step.rounds.calibrated, step.batches_per_step, ask(step.rounds.most)) == (False, 2, 4)
    assert step.program.updates == 0  # compiling runs nothing
    caplog.set_level(logging.INFO, "ipubench.training")
    step()
    # If the weights are needed, training continues beyond the measurement.
    facts = step.finish().facts
    step()  # after the end
    assert updates_in(caplog) == [2, 4, 6, 8]
    assert ask(step.rounds.most) == 1
    assert [found.updates for found in checkpoints.checkpoints(tmp_path)] == [4, 8]
    counters = step.counters()
    names = ("weight_updates", "log_lines", "checkpoints")
    assert [counters[name] for name in names] == [10, 4, 2]
    rates = [float(rate) for rate in re.findall(r"lr: (\S+),", caplog.text)]
    # The rate of each call's last update; after the end the last one stays.
    assert rates == pytest.approx([config.rate(n) for n in (1, 3, 5, 7)], rel=1e-4)
    assert config.rate(9) == config.rate(7)  # after the end the last one stays
    seconds = pytest.approx(step.progress.seconds)
    assert facts == {"training_seconds": seconds, "epochs": 2.0, "of_epochs": 2}
    step.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_training_accuracy_is_that_of_the_seen_images(tmp_path: Path) -> None:
    """With a rate of 0 every micro batch has the same weights, and an image is right or wrong."""
    still = Parameters({"initial_learning_rate": 0.0})
    config = small(lr_schedule="const", lr_schedule_params=still, validation=False)
    step = step_of(config)
    before = [variable.numpy() for variable in step.program.classifier.trainable_variables]
    image, label = step.program._input.take()
    answers = tf.argmax(step.program.classifier(image, ForwardPass(training=True)), 1, tf.int32)
    wanted = float(tf.reduce_mean(tf.cast(answers == label, tf.float32)))
    step()
    assert step.program.accuracy == wanted
    assert step.counters()["training_accuracy"] == wanted
    after = step.program.classifier.trainable_variables
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(before, after))
    step.close()


def test_a_resumed_run_has_the_same_loss_curve(
    dataset: Path, finished: Finished, tmp_path: Path
) -> None:
    """Stopped after update 6, between the checkpoints of 4 and 8, with images, rates and slots."""
    config, data = real_run(str(dataset), checkpoint_output_dir=str(tmp_path))
    stopped = step_of(config, data)
    for _ in range(3):
        stopped()
    stopped.close()
    again = step_of(replace(config, checkpoint_input_dir=str(tmp_path)), data)
    assert again.describe()["restored"] == str(tmp_path / "checkpoint-00000004.npz")
    for loss, accuracy in list(zip(finished.losses, finished.accuracies))[2:]:
        again()
        assert again.program.loss == pytest.approx(loss, rel=1e-5)
        assert again.program.accuracy == accuracy
    found = [variable.numpy() for variable in again.program.state().values()]
    assert all(np.allclose(one, other, 1e-4, 1e-6) for one, other in zip(found, finished.state))
    # Checkpoints from before the stop belong to the training, too.
    assert [one["epoch"] for one in again.finish().facts["validation"]] == [1.0, 2.0]
    again.close()
    # A run deletes its own checkpoints after validating them; another run's are left to the user.
    assert [found.updates for found in checkpoints.checkpoints(tmp_path)] == [4]
    assert len(set(finished.losses)) == 4  # the batches differ


def test_an_impossible_resume_is_one_message(finished: Finished, tmp_path: Path) -> None:
    (first, last) = (found.path for found in checkpoints.checkpoints(finished.checkpoints))
    folder: Dict[str, Any] = {"checkpoint_input_dir": str(tmp_path)}

    def refused(message: str, **options: Any) -> None:
        with pytest.raises(CaseError, match=message):
            step_of(small(**folder, **options))

    refused(f"{tmp_path} has no checkpoints")
    shutil.copy(last, tmp_path)
    refused(f"{tmp_path / last.name} ends a run of")
    (tmp_path / last.name).unlink()
    shutil.copy(first, tmp_path)
    refused("weights/.* the file has", model_name="toy_model")
    refused("has no slots/0/0", optimizer_params=Parameters({"momentum": 0.0}))
    refused("in the middle of a call of 3", weight_updates_per_epoch=3, logs_per_epoch=1)


def test_without_checkpoints_the_final_weights_are_validated(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of a longer measurement; and no round includes the time of writing them."""
    config, data = real_run(str(dataset), ckpts_per_epoch=Fraction(0))
    step = step_of(config, data)
    for _ in range(4):
        step()
    wanted = accuracy_of(step.program.classifier, config, data)
    step.prepare_rounds(print)
    monkeypatch.setattr(step.progress._last, "save", lambda *_: pytest.fail("in a round"))
    step()
    (found,) = step.finish().facts["validation"]
    assert (found["weights"], found["epoch"]) == ("checkpoint-00000008.npz", 2.0)
    assert (found["accuracy"], found["images"]) == wanted
    folder = step.progress._last.path
    step.close()
    assert not folder.exists()


@pytest.mark.parametrize("clean", [True, False])
def test_checkpoints_of_other_replicas_are_deleted_too(
    dataset: Path, tmp_path: Path, clean: bool
) -> None:
    """Only the first one validates; a second run may use the same folder."""
    config, _ = real_run(
        str(dataset),
        replicas=2,
        ckpt_all_instances=True,
        checkpoint_output_dir=str(tmp_path),
        clean_dir=clean,
    )
    step = step_of(config, data_in(dataset, part=(1, 2)))
    assert "validation" not in step.finish().facts
    step.close()
    assert len(list((tmp_path / "instance-1").iterdir())) == (0 if clean else 2)


def test_a_folder_of_checkpoints_is_validated(dataset: Path, finished: Finished) -> None:
    """With training=false the newest checkpoint is measured and all are validated."""
    folder, trained = finished.checkpoints, finished.validation
    config, data = real_run(str(dataset), training=False, checkpoint_input_dir=str(folder))
    step = step_of(config, data)
    assert step.rounds.calibrated
    assert step.describe()["weights"] == "a checkpoint"  # a later one may be compared with it
    # More than two passes: a measurement repeats the data.
    step.batches_per_step = 2 * step.feed.batches_per_epoch
    step()
    assert step.program.correct == 2 * round(trained[1]["accuracy"] * trained[1]["images"])
    facts, (line,) = step.finish()
    assert facts["validation"] == trained
    assert "checkpoint-00000008.npz" in line
    step.close()
    # Each of two instances measures its part, and the first one validates all images.
    for rank, wanted in ((0, facts), (1, {})):
        step = step_of(config, data_in(dataset, part=(rank, 2)))
        step()
        assert step.finish().facts == wanted
        step.close()


def test_a_random_network_is_validated(dataset: Path) -> None:
    config, data = real_run(str(dataset), training=False)
    step = step_of(config, data)
    facts, lines = step.finish()
    (random,) = facts["validation"]
    assert lines == []  # its accuracy is meaningless
    network = config.classifier()(tf, dtype=tf.float32)
    assert (random["accuracy"], random["images"]) == accuracy_of(network, config, data)
    assert (random["weights"], step.describe()["weights"]) == ("random weights",) * 2
    step.close()


def test_meaningless_data_is_validated_in_a_few_batches() -> None:
    """It does not take ten thousand generated images, and leaves no files."""
    step = step_of(small())
    for _ in range(2):
        step()
    folder = step.progress._folder.path
    (facts,) = step.finish().facts["validation"]
    assert facts["images"] == 8 * 4
    assert facts["accuracy"] in (0.0, 1.0)  # one image
    step.close()
    assert not folder.exists()
