"""The application's networks compared with Keras layers, published figures, and one big batch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.models.tensorflow.cnn import named_blocks
from ipubench.models.tensorflow.cnn.blocks import cut_at
from ipubench.models.tensorflow.cnn.classification import split_units
from ipubench.models.tensorflow.cnn.fold import fold, folded_norms
from ipubench.models.tensorflow.cnn.named import MODEL_NAMES, NamedNetwork, build_named
from ipubench.models.tensorflow.cnn.run import ForwardPass
from tests.support.named_networks_reference import (
    BLOCKS,
    MOMENTUM,
    batch_norm,
    copy_to_keras,
    group_norm,
    keras_network,
    random_images,
)
from tests.support.tensorflow_cnn import draw_nothing, draw_zeros, error, vary_norms

pytestmark = pytest.mark.framework

CLASSES = 5
#: The original's own figures; for resnet18 and 34 torchvision's, plus one projection each.
PARAMETERS = {
    "cifar_resnet8": 75_290,
    "cifar_resnet20": 269_722,
    "cifar_resnet32": 464_154,
    "cifar_resnet44": 658_586,
    "cifar_resnet56": 853_018,
    "resnet18": 11_689_512 + 64 * 64 + 2 * 64,
    "resnet34": 21_797_672 + 64 * 64 + 2 * 64,
    "resnet50": 25_557_032,
}
#: Norms that follow a convolution.
FOLDED = {"resnet50": 53, "cifar_resnet8": 7}
#: Splits in the published configurations.
SPLITS = [
    ("resnet50", "conv2_block2_out conv3_block1_out conv4_block2_out"),
    (
        "cifar_resnet56",
        "conv2_block4_post_addition_relu conv2_block7_post_addition_relu "
        "conv3_block4_post_addition_relu",
    ),
    (
        "resnet50",
        "conv2_block1_out conv2_block3_out conv3_block1_out conv3_block3_out conv4_block1_out "
        "conv4_block4_out",
    ),
    ("toy_model", "conv2d_1 flatten"),
]
Shape = Tuple[int, int, int]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="needs TensorFlow: make setup installs it")


def varied(tf: Any, network: NamedNetwork) -> Any:
    classifier = build_named(tf, network, seed=2)
    vary_norms(classifier)
    return classifier


def with_gradients(tf: Any, forward: Callable[[], Any], variables: List[Any], slopes: Any) -> Any:
    """Return (logits, gradients of their product with ``slopes``)."""
    with tf.GradientTape() as tape:
        logits = forward()
        total = tf.reduce_mean(tf.reduce_sum(logits * slopes, 1))
    return logits.numpy(), [gradient.numpy() for gradient in tape.gradient(total, variables)]


def joined(arrays: List[Any]) -> Any:
    # All variables together: a norm after a layer leaves only rounding errors in its gradient.
    return np.concatenate([np.ravel(array) for array in arrays])


# ---------------------------------------------------------------------- which networks there are


@pytest.mark.parametrize(("model_name", "splits"), SPLITS)
def test_published_splits_are_units(model_name: str, splits: str) -> None:
    assert len(cut_at(NamedNetwork(model_name).unit_names, splits.split())) == splits.count(" ") + 1


@pytest.mark.parametrize("model_name", MODEL_NAMES)
def test_parameters_as_published_and_units_as_documented(
    tf: Any, model_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_zeros(monkeypatch)  # the networks never run
    small = model_name.startswith("cifar")
    shape, classes = ((32, 32, 3), 10) if small else ((224, 224, 3), 1000)
    network = NamedNetwork(model_name, classes, shape)
    classifier = build_named(tf, network)
    count = sum(int(np.prod(variable.shape)) for variable in classifier.trainable_variables)
    of_toy = 112 + 40 + 512 * 1000 + 1000 + (24 if model_name == "toy_model_bn" else 0)
    assert count == PARAMETERS.get(model_name, of_toy)
    assert [unit.name for unit in classifier.units] == network.unit_names
    names = [variable.name for variable in classifier.variables]
    assert len(set(names)) == len(names)
    if model_name in FOLDED:
        assert folded_norms(classifier) == FOLDED[model_name]


def test_only_bottlenecks_without_a_projection_start_as_the_identity(
    tf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)  # the networks never run

    def zero(model_name: str) -> List[str]:
        classifier = build_named(tf, NamedNetwork(model_name))
        gammas = [v for v in classifier.variables if "/gamma" in v.name]
        return [v.name.split("/")[0] for v in gammas if not v.numpy().any()]

    blocks = [f"conv{s + 2}_block{b + 2}_3" for s, n in enumerate((2, 3, 5, 2)) for b in range(n)]
    assert zero("resnet50") == blocks
    assert zero("resnet18") == []


# ---------------------------------------------------------------------- their computation


def by_groups(channels: int) -> int:
    return 4


def by_size(channels: int) -> int:
    return channels // 8


# A CPU with other instructions runs only these: all kinds of convolutions and norms.
NUMERIC = ("resnet18-group_norm", "resnet50-custom_batch_norm", "toy_model-custom_batch_norm")
CIFAR_OF_TWO = "cifar_resnet14"  # two blocks per stage; published ones have one, three or more
# Odd sizes show on which side TensorFlow's "SAME" pads.
SHAPES: List[Tuple[str, Shape, str, Dict[str, Any]]] = [
    ("cifar_resnet8", (32, 32, 3), "custom_batch_norm", {}),
    (CIFAR_OF_TWO, (15, 18, 1), "batch_norm", {}),
    ("cifar_resnet8", (16, 16, 3), "group_norm", {"groups": 4}),
    ("resnet18", (32, 32, 3), "group_norm", {"channels_per_group": 8}),
    ("resnet50", (45, 64, 3), "custom_batch_norm", {}),
    ("toy_model", (32, 29, 3), "custom_batch_norm", {}),
    ("toy_model_bn", (52, 52, 3), "custom_batch_norm", {}),
]
CASES = [
    pytest.param(*case, id=name, marks=[pytest.mark.numeric] if name in NUMERIC else [])
    for name, case in ((f"{case[0]}-{case[2]}", case) for case in SHAPES)
]
# These have more of the same blocks; their number and width are checked above. A first block and a
# later one, with and without a stride.
FEWER_BLOCKS = (2, 2)
FEWER_OF = {"resnet18": 18, "resnet50": 50}


@pytest.mark.parametrize(("model_name", "shape", "norm", "options"), CASES)
def test_forward_and_backward_agree_with_keras(
    tf: Any,
    model_name: str,
    shape: Shape,
    norm: str,
    options: Dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, size in FEWER_OF.items():
        monkeypatch.setitem(named_blocks.RESNETS, name, FEWER_BLOCKS)
        monkeypatch.setitem(BLOCKS, size, FEWER_BLOCKS)
    monkeypatch.setitem(named_blocks.CIFAR_RESNETS, CIFAR_OF_TWO, 2)
    network = NamedNetwork(model_name, CLASSES, shape, norm, MOMENTUM, **options)
    classifier = varied(tf, network)
    of_norm = batch_norm(tf)
    if norm == "group_norm":
        of_norm = group_norm(tf, by_groups if network.groups else by_size)
    model = keras_network(tf, model_name, shape, CLASSES, of_norm)
    twins = copy_to_keras(classifier, model)
    images = tf.constant(random_images((4, *shape)))

    # Inference. Every unit also begins at the input of the Keras layer with its name.
    names = network.unit_names[1:]
    inner = tf.keras.Model(model.inputs, [model.get_layer(name).input for name in names])
    expected = inner(images, training=False)
    outputs = images
    for unit, before in zip(classifier.units, expected):
        outputs = unit(outputs, ForwardPass(training=False))
        assert error(outputs, before) < 1e-5, unit.name
    expected = model(images, training=False)
    assert error(classifier.units[-1](outputs, ForwardPass(training=False)), expected) < 1e-5
    # Folded, as in validation.
    assert error(fold(tf, classifier, tf.float32)(images), expected) < 1e-5

    # Training.
    variables, run = classifier.trainable_variables, ForwardPass(training=True)
    slopes = random_images((4, CLASSES), seed=4)
    found = with_gradients(tf, lambda: classifier(images, run), variables, slopes)
    run.update_moving_averages()
    of_ours = [twins[variable.name.split(":")[0]] for variable in variables]
    # Keras 3 wraps variables.
    of_ours = [twin if isinstance(twin, tf.Variable) else twin.value for twin in of_ours]
    theirs = with_gradients(tf, lambda: model(images, training=True), of_ours, slopes)
    assert error(found[0], theirs[0]) < 1e-4
    # Near zero the sign before a ReLU may differ, which counts through many batch norms over few
    # values: in float32 Keras's own gradients are 0.01 off those in float64.
    deep = model_name.startswith("resnet") and norm != "group_norm"
    assert error(joined(found[1]), joined(theirs[1])) < (0.05 if deep else 1e-3)
    for variable in classifier.variables:
        if "moving_mean" in variable.name:
            twin = twins[variable.name.split(":")[0]]
            assert error(variable, twin) < 1e-4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_moving_averages_reach_their_target(tf: Any, dtype: str) -> None:
    """In bfloat16 one stops a twentieth away, because its steps are rounded away."""
    network = NamedNetwork("toy_model_bn", CLASSES, (32, 32, 3), norm_momentum=0.97)
    norm = build_named(tf, network, tf.as_dtype(dtype)).units[2].layers[0]
    assert norm.gamma.dtype == dtype
    mean, variance = tf.fill(norm.gamma.shape, -0.27), tf.fill(norm.gamma.shape, 2.2)
    for _ in range(300):
        norm.update_moving_averages(mean, variance)
    assert error(norm.moving_mean, mean) < 0.02
    assert error(norm.moving_variance, variance) < 0.02


# In bfloat16 other pixels are the maxima of their windows, and other values are below zero.
@pytest.mark.numeric
@pytest.mark.parametrize(
    ("model_name", "dtype", "tolerance"),
    [("cifar_resnet8", "float32", 1e-3), ("toy_model_bn", "bfloat16", 0.25)],
)
def test_compiled_stages_equal_the_network(
    tf: Any, model_name: str, dtype: str, tolerance: float
) -> None:
    network = NamedNetwork(model_name, CLASSES, (32, 32, 3))
    classifier = varied(tf, network)
    images, slopes = tf.constant(random_images((4, 32, 32, 3))), random_images((4, CLASSES), seed=4)
    variables, splits = classifier.trainable_variables, network.unit_names[2:5:2]
    stages = split_units(classifier, splits)
    assert [stage[0].name for stage in stages[1:]] == splits

    @tf.function(jit_compile=True, autograph=False)
    def compiled(images: Any) -> Any:
        run = ForwardPass(training=True)
        with tf.GradientTape() as tape:
            for unit in (unit for stage in stages for unit in stage):
                images = unit(images, run)
            total = tf.reduce_mean(tf.reduce_sum(tf.cast(images, tf.float32) * slopes, 1))
        return images, tape.gradient(total, variables)

    logits, gradients = with_gradients(
        tf, lambda: classifier(images, ForwardPass(training=True)), variables, slopes
    )
    found = compiled(tf.cast(images, dtype))
    assert found[0].dtype == dtype
    assert error(tf.cast(found[0], tf.float32), logits) < tolerance
    assert error(joined(found[1]), joined(gradients)) < tolerance


# ---------------------------------------------------------------------- distributed batch norms


class Exchange:
    """The mean over replicas, each of which is a thread."""

    def __init__(self, tf: Any, replicas: int) -> None:
        self._tf = tf
        self._values: List[Any] = [None] * replicas
        self._barrier = threading.Barrier(replicas, timeout=60)
        self.calls = [0] * replicas

    def reduce(self, replica: int) -> Callable[[Any], Any]:
        def mean(value: Any) -> Any:
            self.calls[replica] += 1
            self._values[replica] = value
            self._barrier.wait()
            total = self._tf.add_n(self._values) / len(self._values)
            self._barrier.wait()
            return total

        return mean


@pytest.mark.parametrize("far", [0.0, 300.0], ids=["near", "far"])
def test_a_distributed_group_equals_one_big_batch(tf: Any, far: float) -> None:
    replicas, size = 2, 4
    network = NamedNetwork("cifar_resnet8", CLASSES, (16, 16, 3), replica_group=replicas)
    classifier = varied(tf, network)
    images = random_images((replicas * size, 16, 16, 3))
    # Replicas have unlike images, so local statistics would be far from the common ones.
    images[size:] = 3.0 * images[size:] + 0.5 + far
    images[:size] += far
    slopes = random_images((replicas * size, CLASSES), seed=4)
    variables = classifier.trainable_variables
    whole = ForwardPass(training=True)
    logits, gradients = with_gradients(
        tf, lambda: classifier(tf.constant(images), whole), variables, slopes
    )
    exchange = Exchange(tf, replicas)
    runs = [ForwardPass(training=True, reduce=exchange.reduce(n)) for n in range(replicas)]

    def work(replica: int) -> Any:
        part = slice(replica * size, (replica + 1) * size)
        own = tf.constant(images[part])
        return with_gradients(tf, lambda: classifier(own, runs[replica]), variables, slopes[part])

    with ThreadPoolExecutor(replicas) as pool:
        results = list(pool.map(work, range(replicas)))
    tolerance = 1e-5
    assert error(np.concatenate([result[0] for result in results]), logits) < tolerance
    means = [sum(parts) / replicas for parts in zip(*(result[1] for result in results))]
    assert error(joined(means), joined(gradients)) < 10 * tolerance
    assert exchange.calls == [3 * 7] * replicas  # forward twice, backward once, for each norm
    for (norm, *expected), *found in zip(whole.statistics, *(run.statistics for run in runs)):
        for other, *statistics in found:
            assert other is norm
            for one, same in zip(statistics, expected):
                assert error(one, same) < tolerance
    alone = ForwardPass(training=True)
    own = classifier(tf.constant(images[:size]), alone)
    assert error(own, logits[:size]) > 0.01  # without `reduce`, a replica's own batch
