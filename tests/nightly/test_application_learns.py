"""The application learns as well as a plain Keras program from the same files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, Tuple

import numpy as np
import pytest

from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.data.tf_data import plain_options
from ipubench.fixtures.data.tfds import samples
from tests.runtimes.tensorflow.host.test_application import data_in, small, step_of
from tests.support.examples import learnable_cifar
from tests.support.named_networks_reference import EPSILON, copy_to_keras, keras_network

pytestmark = pytest.mark.framework
tf = pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")

IMAGES, EPOCHS, BATCH, RATE, MOMENTUM = 480, 3, 16, 0.02, 0.9
VALIDATED = 300


def plain_keras(folder: Path, classifier: Any) -> float:
    """Return the accuracy of a plain Keras program with the same files and initial weights."""
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
    train = train.with_options(plain_options(tf))
    model.fit(train, epochs=EPOCHS, verbose=0)
    images, labels = next(iter(split("test").batch(VALIDATED).with_options(plain_options(tf))))
    answers = np.argmax(model(images, training=False), 1)
    return float(np.mean(answers == labels.numpy()))


def test_it_learns_as_well_as_a_plain_keras_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cifar_resnet8 on images in CIFAR-10's layout has the same accuracy on unseen images.

    The rate falls to zero and the norms' averages are short, so both programs end at rest: at a
    constant rate a rounding error decides how far the averages lag behind the weights. Images
    clearer than the suite's samples are learnt in fewer updates, with any seed.
    """
    monkeypatch.setattr(samples, "NOISE", 5.0)
    monkeypatch.setattr(samples, "CONTRAST", (60.0, 60.0))
    learnable_cifar(tmp_path, IMAGES, VALIDATED)
    rate = {"initial_learning_rate": RATE / BATCH, "epochs_to_total_decay": EPOCHS}
    config = small(
        data="real",
        model_name="cifar_resnet8",
        micro_batch_size=BATCH,
        gradient_accumulation_count=1,  # a batch norm gets as many images as Keras's
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
    (found,) = step.finish().facts["validation"]
    step.close()
    reference = plain_keras(tmp_path, config.classifier()(tf, dtype=tf.float32))
    assert found["images"] == VALIDATED
    assert reference > 0.9  # chance is 0.1
    assert found["accuracy"] > reference - 0.03
