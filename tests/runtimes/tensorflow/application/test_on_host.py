"""The application on a host: device calls, what happens between them, stopping and going on."""

from __future__ import annotations

import json
import logging
import re
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.rules import settled
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.data.imagenet.pipeline import as_asked
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.tfds import pipeline, samples
from ipubench.fixtures.data.tfds.find import PreparedSplit, find_prepared
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.tensorflow.application import checkpoints
from ipubench.fixtures.runtimes.tensorflow.on_host import TensorFlowHost
from tests.support.examples import learnable_cifar
from tests.support.harness import Project, run_code
from tests.support.named_networks_reference import EPSILON, copy_to_keras, keras_network
from tests.support.tensorflow_cases import nothing

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")

# A call has 2 weight updates of 2 micro batches, a log line and, every other one, a checkpoint.
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
    """Return a configuration of training on such images, and what makes its feeds."""
    config = settled(small(data="real", deterministic=True, **options))
    return config, data_in(Path(folder))


def data_in(folder: Path, part: Tuple[int, int] = (0, 1)) -> Data:
    """Return what makes the feeds of a folder of small data sets."""
    return Data(lambda kind, *names: found_in(folder, *names), part)


def found_in(folder: Path, dataset: str, split: str) -> PreparedSplit:
    """Return a split that is there."""
    found = find_prepared(folder, dataset, split)
    assert found is not None
    return found


def step_of(config: Application, data: Any = None) -> Any:
    """Return the step of a configuration on this machine's CPU, built and compiled."""
    data = data or Data(nothing)
    step = TensorFlowHost(CpuDevice()).application(
        config.classifier(),
        config.recipe,
        config,
        config.feed(data),
        config.validation_feed(data),
    )
    step.build()
    step.compile()
    return step


class Finished(NamedTuple):
    """A run that was left alone: what each call gave, the state and the validation at its end."""

    losses: List[float]
    accuracies: List[float]
    state: List[Any]
    validation: List[Dict[str, Any]]
    checkpoints: Path


@pytest.fixture(scope="module")
def finished(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A whole run, which leaves its checkpoints."""
    folder = tmp_path_factory.mktemp("checkpoints")
    step = step_of(*real_run(str(dataset), checkpoint_output_dir=str(folder), clean_dir=False))
    losses, accuracies = [], []
    for _ in range(4):
        step()
        losses.append(step.loss)
        accuracies.append(step.accuracy)
    state = [variable.numpy() for variable in step._state().values()]
    validation = step.finish()["validation"]
    step.close()
    return Finished(losses, accuracies, state, validation, folder)


def updates_in(caplog: pytest.LogCaptureFixture) -> List[int]:
    """Return after how many updates the log lines stand."""
    return [int(number) for number in re.findall(r"batch (\d+): ", caplog.text)]


def test_a_call_runs_the_updates_up_to_the_next_host_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs every 2 updates, checkpoints every 4; calls beyond the run's end leave neither."""
    config = small(checkpoint_output_dir=str(tmp_path), validation=False)
    step = step_of(config)
    assert (step.calibrated, step.batches_per_step, step.most_rounds) == (False, 2, 4)
    assert step.updates == 0  # compiling runs nothing
    with caplog.at_level(logging.INFO, "ipubench.training"):
        for _ in range(5):
            step()
    assert updates_in(caplog) == [2, 4, 6, 8]
    assert step.most_rounds == 1
    assert [found.updates for found in checkpoints.checkpoints(tmp_path)] == [4, 8]
    counters = step.counters()
    assert (counters["weight_updates"], counters["log_lines"], counters["checkpoints"]) == (
        10,
        4,
        2,
    )
    rates = [float(rate) for rate in re.findall(r"lr: (\S+),", caplog.text)]
    recipe = config.recipe
    # That of each call's last update; beyond the end it stays at the last.
    assert rates == pytest.approx([recipe.rate(n) for n in (1, 3, 5, 7)], rel=1e-4)
    assert step._rate(9) == recipe.rate(7)
    assert step.finish() == {
        "training_seconds": pytest.approx(step.progress.seconds),
        "epochs": 2.0,
        "of_epochs": 2,
    }
    step.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_what_was_not_measured_of_a_run_is_trained_where_its_weights_are_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small(checkpoint_output_dir=str(tmp_path), validation=False)
    step = step_of(config)
    step()
    caplog.clear()
    with caplog.at_level(logging.INFO, "ipubench.training"):
        facts = step.finish()
    assert (facts["epochs"], facts["of_epochs"]) == (2.0, 2)
    assert updates_in(caplog) == [4, 6, 8]
    assert [found.updates for found in checkpoints.checkpoints(tmp_path)] == [4, 8]
    step.close()

    step = step_of(small(validation=False))  # nobody wants these
    step()
    assert step.finish()["epochs"] == 0.5
    step.close()


def test_the_training_accuracy_is_that_of_the_images_seen(tmp_path: Path) -> None:
    """With a rate of 0 every micro batch meets the same weights: one image, right or wrong."""
    still = Parameters({"initial_learning_rate": 0.0})
    config = small(lr_schedule="const", lr_schedule_params=still, validation=False)
    step = step_of(config)
    before = [variable.numpy() for variable in step.classifier.trainable_variables]
    image, label = step._input.take()
    from ipubench.models.tensorflow.cnn.run import ForwardPass

    answers = tf.argmax(step.classifier(image, ForwardPass(training=True)), 1, tf.int32)
    wanted = float(tf.reduce_mean(tf.cast(answers == label, tf.float32)))
    step()
    assert step.accuracy == wanted
    assert step.counters()["training_accuracy"] == wanted
    after = step.classifier.trainable_variables
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(before, after))
    step.close()


CHILD = """
import logging, os, signal
from tests.runtimes.tensorflow.application.test_on_host import real_run, step_of

class Kill(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("batch 6:"):
            os.kill(os.getpid(), signal.SIGKILL)

logging.getLogger("ipubench.training").addHandler(Kill())
step = step_of(*real_run({dataset!r}, checkpoint_output_dir={output!r}))
for _ in range(4):
    step()
"""


def test_a_run_that_is_killed_goes_on_with_the_same_loss_curve(
    dataset: Path, finished: Finished, tmp_path: Path
) -> None:
    """Killed after update 6, between the checkpoints of 4 and 8; images, rates, slots, all."""
    program = CHILD.format(dataset=str(dataset), output=str(tmp_path))
    child = run_code(program, framework="tensorflow")
    assert child.code == -signal.SIGKILL, child.text
    assert len(re.findall(r"^batch \d+: ", child.text, re.MULTILINE)) == 2
    assert [found.updates for found in checkpoints.checkpoints(tmp_path)] == [4]

    config, data = real_run(
        str(dataset), checkpoint_input_dir=str(tmp_path), checkpoint_output_dir=str(tmp_path)
    )
    again = step_of(config, data)
    assert again.describe()["restored"] == str(tmp_path / "checkpoint-00000004.npz")
    for loss, accuracy in list(zip(finished.losses, finished.accuracies))[2:]:
        again()
        assert again.loss == pytest.approx(loss, rel=1e-5)
        assert again.accuracy == accuracy
    found = [variable.numpy() for variable in again._state().values()]
    assert all(np.allclose(one, other, 1e-4, 1e-6) for one, other in zip(found, finished.state))
    # The checkpoints from before the kill are those of the training, too.
    assert [one["epoch"] for one in again.finish()["validation"]] == [1.0, 2.0]
    again.close()
    # What another process wrote is left to the user.
    assert [found.updates for found in checkpoints.checkpoints(tmp_path)] == [4]
    assert len(set(finished.losses)) == 4  # the batches differ


def test_what_cannot_go_on_is_one_message(tmp_path: Path) -> None:
    """A checkpoint of another network or calls, of a finished run, cut short; an empty folder."""
    step = step_of(small(checkpoint_output_dir=str(tmp_path), validation=False))
    for _ in range(4):
        step()
    step.close()
    last = tmp_path / "checkpoint-00000008.npz"
    refused(small(checkpoint_input_dir=str(tmp_path)), f"{last} is the end of a run of 8 weight")
    last.rename(tmp_path / "other")
    first = tmp_path / "checkpoint-00000004.npz"
    refused(
        small(checkpoint_input_dir=str(tmp_path), model_name="toy_model"),
        f"{first} is of another network or optimiser: weights/.* the file has .*; give the options",
    )
    refused(
        small(checkpoint_input_dir=str(tmp_path), optimizer_params=Parameters({"momentum": 0.0})),
        f"{first} is of another network or optimiser: nothing here is named slots/0/0",
    )
    refused(
        small(checkpoint_input_dir=str(tmp_path), weight_updates_per_epoch=3, logs_per_epoch=1),
        f"{first} was written after 4 weight updates, .* in the middle of a call of 3",
    )
    first.write_bytes(first.read_bytes()[:-1000])
    for training in (True, False):
        refused(
            small(checkpoint_input_dir=str(tmp_path), training=training),
            f"{first} is damaged or was cut short",
        )
    first.unlink()
    refused(small(checkpoint_input_dir=str(tmp_path)), f"{tmp_path} has no checkpoints")


def refused(config: Application, message: str) -> None:
    """The step of a configuration cannot be built, and says so."""
    with pytest.raises(CaseError, match=message):
        step_of(config)


def test_checkpoints_are_validated_after_training_and_then_deleted(
    dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The accuracies are those of the unfolded network on all images, the padded ones left out."""
    other = tmp_path / "notes.txt"
    other.write_text("not the run's")
    config, data = real_run(str(dataset), checkpoint_output_dir=str(tmp_path))
    step = step_of(config, data)
    wanted = []
    for _ in range(4):
        step()
        if step.updates % 4 == 0:
            wanted.append(accuracy_of(step.classifier, config, data))
    with caplog.at_level(logging.INFO, "ipubench.training"):
        facts = step.finish()["validation"]
    assert [found["weights"] for found in facts] == [
        "checkpoint-00000004.npz",
        "checkpoint-00000008.npz",
    ]
    assert [found["epoch"] for found in facts] == [1.0, 2.0]
    assert [(found["accuracy"], found["images"]) for found in facts] == wanted
    assert f"accuracy: {100 * wanted[1][0]:.3f} % of {wanted[1][1]} images" in caplog.text
    step.close()
    assert list(tmp_path.iterdir()) == [other]
    json.dumps(facts, allow_nan=False)


@pytest.mark.parametrize("in_warm_up", [True, False])
def test_without_checkpoints_the_weights_at_the_end_are_validated(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, in_warm_up: bool
) -> None:
    """Not those that a longer measurement makes of them, whose call may have begun."""
    config, data = real_run(str(dataset), ckpts_per_epoch=Fraction(0))
    step = step_of(config, data)
    for _ in range(4):
        step()
    wanted = accuracy_of(step.classifier, config, data)
    if not in_warm_up:  # then no round has the time of writing them
        step.prepare_rounds(print)
        monkeypatch.setattr(step.progress._last, "save", lambda *_: pytest.fail("in a round"))
    step()
    (found,) = step.finish()["validation"]
    assert (found["weights"], found["epoch"]) == ("checkpoint-00000008.npz", 2.0)
    assert (found["accuracy"], found["images"]) == wanted
    folder = step.progress._last.path
    step.close()
    assert not folder.exists()


@pytest.mark.parametrize("clean", [True, False])
def test_what_another_replica_saved_is_deleted_as_well(
    dataset: Path, tmp_path: Path, clean: bool
) -> None:
    """The first alone validates; a second run may have the same folder."""
    config, _ = real_run(
        str(dataset),
        replicas=2,
        ckpt_all_instances=True,
        checkpoint_output_dir=str(tmp_path),
        clean_dir=clean,
    )
    step = step_of(config, data_in(dataset, part=(1, 2)))
    assert "validation" not in step.finish()
    step.close()
    assert len(list((tmp_path / "instance-1").iterdir())) == (0 if clean else 2)


def test_a_folder_and_a_random_network_are_validated_alone(
    dataset: Path, finished: Finished
) -> None:
    """training=false: the newest checkpoint is what is measured, all are validated."""
    folder, trained = finished.checkpoints, finished.validation
    assert len(list(folder.iterdir())) == 2
    config, data = real_run(str(dataset), training=False, checkpoint_input_dir=str(folder))
    step = step_of(config, data)
    assert step.calibrated
    assert step.describe()["weights"] == "a checkpoint"  # a later one may be compared with it
    # More than two passes: a measurement goes round and round.
    step.batches_per_step = 2 * step.feed.batches_per_epoch
    step()
    assert step.correct == 2 * round(trained[1]["accuracy"] * trained[1]["images"])
    facts = step.finish()
    assert facts["validation"] == trained
    (line,) = step.summary(facts)
    assert f"{trained[1]['images']} validation images (checkpoint-00000008.npz, the last" in line
    step.close()

    config, data = real_run(str(dataset), training=False)
    step = step_of(config, data)
    facts = step.finish()
    (random,) = facts["validation"]
    assert step.summary(facts) == []  # its accuracy means nothing
    network = config.classifier()(tf, dtype=tf.float32)
    assert (random["accuracy"], random["images"]) == accuracy_of(network, config, data)
    assert (random["weights"], step.describe()["weights"]) == ("random weights",) * 2
    step.close()


def test_one_of_several_instances_validates_and_sees_all_images(
    dataset: Path, finished: Finished
) -> None:
    """Each measures its own part; the part of one would be half of the accuracy."""
    folder = str(finished.checkpoints)
    config, _ = real_run(str(dataset), training=False, checkpoint_input_dir=folder)
    found = []
    for rank in range(2):
        step = step_of(config, data_in(dataset, part=(rank, 2)))
        step()
        found.append(step.finish())
        step.close()
    assert found == [{"validation": finished.validation}, {}]


def accuracy_of(classifier: Any, config: Application, data: Data) -> Tuple[float, int]:
    """Return (share of right answers, images) of one pass through a network as it is."""
    from ipubench.models.tensorflow.cnn.run import ForwardPass

    feed = config.validation_feed(data)()
    right = images = 0
    for pixels, labels in pipeline.dataset(tf, feed, "float32"):
        answers = tf.argmax(classifier(pixels, ForwardPass(training=False)), 1, tf.int32)
        right += int(tf.reduce_sum(tf.cast(answers == labels, tf.int32)))
        images += int(tf.reduce_sum(tf.cast(labels < feed.classes, tf.int32)))
    return right / images, images


def test_data_without_meaning_is_validated_in_a_few_batches() -> None:
    """Not in ten thousand generated images; nothing is left behind."""
    step = step_of(small())
    for _ in range(2):
        step()
    folder = step.progress._folder.path
    (facts,) = step.finish()["validation"]
    assert facts["images"] == 8 * 4
    assert facts["accuracy"] in (0.0, 1.0)  # one image
    step.close()
    assert not folder.exists()


def test_gradients_are_reduced_where_replicas_have_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the hook makes of the gradients is what the optimiser takes."""
    from ipubench.fixtures.runtimes.data_parallel import Replicas

    monkeypatch.setattr(Replicas, "means", lambda _, tensors: [0.0 * t for t in tensors])
    step = step_of(small(validation=False))
    before = [variable.numpy() for variable in step.classifier.trainable_variables]
    step()
    after = [variable.numpy() for variable in step.classifier.trainable_variables]
    assert all(map(np.array_equal, before, after))
    step.close()


def test_the_record_has_what_a_step_does_at_its_end(project: Project) -> None:
    """After the counters were read, once, before the step is closed."""
    bench = project.folder / "bench_fake.py"
    bench.write_text(
        bench.read_text()
        + """

class Finishing(FakeStep):
    def finish(self):
        assert not self.closed
        self.device.clock.advance(7.0)
        return {"calls": len(self.batches)}


@cases(Other(name="last"))
def bench_finishing(config, device, meter):
    step = Finishing(device, ArrayFeed(config.data, ()), 0.01)
    meter(step, items=1, unit="items")
    assert step.closed
"""
    )
    project.run("-k", "last or delta").assert_code(0)
    records = project.records()
    assert "finish" not in records["delta-synthetic"]
    last = records["last-synthetic"]
    assert last["finish"]["calls"] > last["rounds"]["count"]
    assert last["throughput"]["median"] == pytest.approx(100)


IMAGES, EPOCHS, BATCH, RATE, MOMENTUM = 480, 3, 16, 0.02, 0.9
VALIDATED = 300


def plain_keras(folder: Path, classifier: Any) -> float:
    """Return the accuracy that a plain Keras program reaches with the files and initial weights."""
    keras = tf.keras
    tf.random.set_seed(0)

    def parsed(record: Any) -> Tuple[Any, Any]:
        kinds = {"image": tf.string, "label": tf.int64}
        features = {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()}
        example = tf.io.parse_single_example(record, features)
        pixels = tf.reshape(tf.io.decode_png(example["image"], channels=3), [32, 32, 3])
        return tf.image.per_image_standardization(pixels), example["label"]

    def augmented(image: Any, label: Any) -> Tuple[Any, Any]:
        image = tf.image.random_flip_left_right(tf.pad(image, [[4, 4], [4, 4], [0, 0]]))
        return tf.image.random_crop(image, [32, 32, 3]), label

    def split(name: str) -> Any:
        files = sorted(str(path) for path in folder.rglob(f"*{name}.tfrecord*"))
        assert files
        return tf.data.TFRecordDataset(files).map(parsed).cache()

    def norm(name: str) -> Any:
        return keras.layers.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON, name=name)

    model = keras_network(tf, "cifar_resnet8", (32, 32, 3), 10, norm)
    copy_to_keras(classifier, model)
    rate = keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * (IMAGES // BATCH))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), loss)
    train = split("train").map(augmented).shuffle(IMAGES).batch(BATCH, drop_remainder=True)
    train = train.with_options(as_asked(tf))
    model.fit(train, epochs=EPOCHS, verbose=0)
    images, labels = next(iter(split("test").batch(VALIDATED).with_options(as_asked(tf))))
    answers = np.argmax(model(images, training=False), 1)
    return float(np.mean(answers == labels.numpy()))


# That networks and their gradients are right on other CPUs, the tests of the networks show.
@pytest.mark.slow
def test_it_learns_as_well_as_a_plain_keras_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cifar_resnet8 on images in CIFAR-10's layout: the same accuracy on images not seen.

    The rate falls to zero and the norms' averages are short, so that both programs end at rest: at
    a constant rate a rounding error decides how far the averages lag behind the weights. Images
    that are clearer than the suite's samples are learnt in fewer updates, whatever the seed.
    """
    monkeypatch.setattr(samples, "NOISE", 5.0)
    monkeypatch.setattr(samples, "CONTRAST", (60.0, 60.0))
    learnable_cifar(tmp_path, IMAGES, VALIDATED)
    rate = {"initial_learning_rate": RATE / BATCH, "epochs_to_total_decay": EPOCHS}
    config = small(
        data="real",
        model_name="cifar_resnet8",
        micro_batch_size=BATCH,
        gradient_accumulation_count=1,  # a batch norm sees as many images as Keras'
        weight_updates_per_epoch=IMAGES // BATCH,
        num_epochs=EPOCHS,
        logs_per_epoch=Fraction(1),
        norm_layer=Parameters({"name": "custom_batch_norm", "momentum": MOMENTUM}),
        lr_schedule_params=Parameters(rate),
        ckpts_per_epoch=Fraction(1, EPOCHS),
        validation_micro_batch_size=100,
    )
    step = step_of(config, data_in(tmp_path))
    for _ in range(config.program.calls):
        step()
    (found,) = step.finish()["validation"]
    step.close()
    reference = plain_keras(tmp_path, config.classifier()(tf, dtype=tf.float32))
    assert found["images"] == VALIDATED
    assert reference > 0.9  # chance is 0.1
    assert found["accuracy"] > reference - 0.03
