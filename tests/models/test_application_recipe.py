"""The application's recipe compared with NumPy: rates, optimisers, loss, pixels, updates."""

from __future__ import annotations

import itertools
import math
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_training.application.case import Application
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.models.tensorflow.cnn.run import ForwardPass
from ipubench.models.tensorflow.training import auto_scaling, optimisers
from ipubench.models.tensorflow.training.inputs import preprocess
from ipubench.models.tensorflow.training.recipe import Targets
from tests.models.test_training_mathematics import NAMED, RATES, trained
from tests.models.test_training_mathematics import values as gradients_of_updates
from tests.support import sdk_api
from tests.support import tensorflow_ipu as small
from tests.support.tensorflow_cnn import CLASSES, network

pytestmark = pytest.mark.framework

PER_EPOCH, EPOCHS, BATCH = 7, 8, 64
DECAY, L2 = 0.05, 0.02


#: Parameters of an option that is a JSON object.
IN_OBJECTS = {
    "optimizer_params": ("momentum", "decay", "base_decay_exponent", "epsilon"),
    "lr_schedule_params": (
        *("initial_learning_rate", "epochs_to_total_decay", "end_learning_rate_ratio", "power"),
        *("boundaries", "values"),
    ),
    "lr_warmup_params": ("warmup_mode", "warmup_epochs"),
}


def recipe(**options: Any) -> Application:
    """Return a configuration; parameters of JSON objects are given by their names."""
    if options.get("lr_schedule") != "stepped":
        options.setdefault("initial_learning_rate", 1e-4)
    for name, keys in IN_OBJECTS.items():
        given = {key: options.pop(key) for key in keys if key in options}
        if "decay" in given:  # that of LARS, not the option
            given["weight_decay"] = given.pop("decay")
        options[name] = Parameters(given)
    needed: Dict[str, Any] = {
        **{"dataset": "cifar10", "micro_batch_size": BATCH},
        **{"weight_updates_per_epoch": PER_EPOCH, "num_epochs": EPOCHS},
    }
    return Application(**{**needed, **options})


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


# --- rates -----------------------------------------------------------------------------------

SCHEDULES: Dict[str, Dict[str, Any]] = {
    "const": {},
    "cosine": {"epochs_to_total_decay": 4.5},
    "stepped": {"boundaries": (1.0, 2.5, 4.0), "values": (0.4, 0.2, 0.3, 0.1)},
    "polynomial": {"epochs_to_total_decay": 5.0, "end_learning_rate_ratio": 0.01, "power": 2.0},
}
FIRST_RATE = {"initial_learning_rate": 0.01}
FIRST = 0.01 * BATCH
SPAN = np.arange(8 * PER_EPOCH)  # after the end of every schedule


def value(schedule: str, t: float) -> float:
    """Return the value of one of SCHEDULES at an update, without warm-up."""
    if schedule == "const":
        return FIRST
    if schedule == "cosine":
        return FIRST * (1 + math.cos(math.pi * min(1.0, t / 31))) / 2  # int(4.5 * 7)
    if schedule == "polynomial":
        return FIRST * (0.01 + 0.99 * max(0.0, 1 - t / 35) ** 2)
    return 0.4 if t <= 7 else 0.2 if t <= 17 else 0.3 if t <= 28 else 0.1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rate_is_its_formula(schedule: str) -> None:
    for warmup, stairs in itertools.product(("", "shift", "mask"), (False, True)):
        made = recipe(
            lr_schedule=schedule,
            lr_staircase=stairs,
            **({"warmup_mode": warmup, "warmup_epochs": 1.5} if warmup else {}),
            **{**({} if schedule == "stepped" else FIRST_RATE), **SCHEDULES[schedule]},
        )
        made.check()
        wanted = []
        for t in SPAN:
            t = t - t % PER_EPOCH if stairs else t
            w = 10  # int(1.5 * 7)
            if not warmup:
                wanted.append(value(schedule, t))
            elif t < w:
                wanted.append(value(schedule, t if warmup == "mask" else 0) * (t + 1) / (w + 1))
            else:
                wanted.append(value(schedule, t if warmup == "mask" else t - w))
        assert [made.rate(int(t)) for t in SPAN] == pytest.approx(wanted, rel=1e-12), warmup


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"warmup_epochs": 2.0}, "warmup_mode"),
        ({"lr_schedule": "cosine"}, "epochs_to_total_decay"),
        ({"lr_schedule": "stepped", "values": (1.0,), "boundaries": (1.0,)}, "values"),
        ({"lr_schedule": "stepped", "values": (1, 2, 3), "boundaries": (2.0, 1.0)}, "do not rise"),
        ({"momentum": 1.0}, "momentum"),
        ({"optimizer": "lars", "weight_decay": 1e-4}, "weight_decay"),
        ({"optimizer": "rmsprop", "weight_decay": 1e-4}, "l2_regularization"),
        ({"optimizer": "rmsprop", "base_decay_exponent": -6}, "base_decay_exponent"),
        ({"loss_scaling": 1e39}, "loss_scaling"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"auto_loss_scaling": True, "optimizer": "lars"}, "lars"),
        ({"auto_loss_scaling": True, "momentum": 0.9}, "momentum"),
        ({"auto_loss_scaling": True, "loss_scaling": 128.0}, "loss_scaling"),
        ({"auto_loss_scaling": True, "warmup_mode": "mask", "warmup_epochs": 1.0}, "mask"),
    ],
)
def test_a_meaningless_value_is_refused(options: Dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        recipe(**options).check()


# --- optimisers ------------------------------------------------------------------------------


Numbers = Tuple[float, float, bool]  # learning rate, momentum, whether it is a norm or a bias


def numpy_sgd(w: Any, g: Any, s: Dict[str, Any], given: Numbers) -> Any:
    rate, momentum, _ = given
    s["v"] = momentum * s.get("v", 0) - rate * g
    return w + s["v"] - rate * DECAY * w


def numpy_lars(w: Any, g: Any, s: Dict[str, Any], given: Numbers) -> Any:
    rate, momentum, norm_or_bias = given
    if not norm_or_bias:
        length = np.sqrt((w * w).sum())
        trust = 0.001 * length / (np.sqrt((g * g).sum()) + DECAY * length + 1e-7)
        g = trust * (g + DECAY * w)
    s["v"] = momentum * s.get("v", 0) + rate * g
    return w - s["v"]


def numpy_rmsprop(w: Any, g: Any, s: Dict[str, Any], given: Numbers) -> Any:
    rate, momentum, _ = given
    rho = 1 - 2.0**-9 * BATCH
    s["s"] = rho * s.get("s", 0) + (1 - rho) * g * g
    root = np.sqrt(s["s"] + 0.01) if momentum else np.sqrt(s["s"]) + 0.01  # as in Keras
    s["v"] = momentum * s.get("v", 0) + rate * g / root
    return w - s["v"]


RMSPROP = {"optimizer": "rmsprop", "base_decay_exponent": -9, "epsilon": 0.01}
OPTIMISERS: Dict[str, Tuple[Callable[..., Any], Dict[str, Any]]] = {
    "sgd": (numpy_sgd, {"weight_decay": DECAY}),
    "lars": (numpy_lars, {"optimizer": "lars", "decay": DECAY}),
    "rmsprop": (numpy_rmsprop, RMSPROP),
}


@pytest.mark.parametrize(("momentum", "l2", "fuse"), [(0.8, L2, True), (0.0, 0.0, False)])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_agrees_with_numpy(
    tf: Any, name: str, momentum: float, l2: float, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With loss scaling, which changes nothing; L2 is in every gradient, also of norms."""
    monkeypatch.setattr(optimisers, "FUSED_FROM", 100)  # only the kernel is large
    reference, options = OPTIMISERS[name]
    made = recipe(momentum=momentum, l2_regularization=l2, loss_scaling=128.0, **options)
    made.check()
    variables, slots = trained(tf, made.optimiser_for(tf, fuse), scaling=128.0)
    assert {len(own) for own in slots} == {(name == "rmsprop") + (momentum > 0)}
    weights, gradients = gradients_of_updates()
    for index, (key, variable) in enumerate(zip(NAMED, variables)):
        state: Dict[str, Any] = {}
        w = weights[index].astype(np.float64)
        for rate, slopes in zip(RATES, gradients):
            g = slopes[index].astype(np.float64) + l2 * w
            w = reference(w, g, state, (rate, momentum, "kernel" not in key))
        np.testing.assert_allclose(variable.numpy(), w, rtol=2e-5, atol=2e-6)
        assert np.abs(w - weights[index]).max() > 1e-4


def test_lars_with_a_weight_or_a_gradient_of_zeros_is_finite(tf: Any) -> None:
    optimiser = recipe(optimizer="lars").optimiser_for(tf)
    variables = [tf.Variable([0.0, 0.0], name="a"), tf.Variable([1.0, 2.0], name="b")]
    slots = optimiser.slots(variables)
    slopes = [tf.constant([1.0, 1.0]), tf.constant([0.0, 0.0])]
    tf.function(optimiser.update, autograph=False)(variables, slopes, slots, tf.constant(0.5))
    assert variables[0].numpy().tolist() == [-0.5, -0.5]
    assert variables[1].numpy().tolist() == [1.0, 2.0]


def test_sixteen_bits_are_rounded_once_per_update(tf: Any) -> None:
    made = recipe(momentum=0.8, weight_decay=DECAY, l2_regularization=L2)
    variables, slots = trained(tf, made.optimiser_for(tf), "bfloat16")
    exact, _ = trained(tf, made.optimiser_for(tf))
    for variable, own, other in zip(variables, slots, exact):
        assert {variable.dtype.name, *(slot.dtype.name for slot in own)} == {"bfloat16"}
        found, wanted = tf.cast(variable, tf.float32).numpy(), other.numpy()
        assert 0 < np.abs(found - wanted).max() < 4 * 2.0**-8 * np.abs(wanted).max()


# --- the loss --------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_spreads_smoothing_over_all_classes(tf: Any, smoothing: float) -> None:
    generator = np.random.RandomState(1)
    logits, labels = generator.normal(size=(5, CLASSES)), np.array([0, 3, 9, 9, 2], np.int32)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    target = np.eye(CLASSES)[labels] * (1 - smoothing) + smoothing / CLASSES
    made = recipe(label_smoothing=smoothing)
    found = made.loss(tf, tf.constant(logits, tf.float32), Targets(tf.constant(labels)))
    assert float(found) == pytest.approx(-(target * logs).sum(axis=1).mean(), rel=1e-5)


# --- automatic loss scaling ------------------------------------------------------------------


def test_the_scale_follows_the_share_near_overflow(tf: Any) -> None:
    """The rule in plain numbers: raised, held below the limit, lowered, never below 1."""
    optimiser: Any = recipe(auto_loss_scaling=True).optimiser_for(tf)
    variables = [tf.Variable(np.zeros(1000, np.float32)), tf.Variable(0.0)]
    slots = optimiser.slots(variables)
    update = tf.function(optimiser.update, autograph=False)
    scale, near, scales, found = 1.0, 0, [], []
    # Unscaled gradients: tiny, then one element of 1001 near overflow, then far too large.
    for number, large in enumerate([0.0] * 150 + [1e5] * 136 + [0.0] * 10):
        gradient = np.zeros(1000, np.float32)
        gradient[3] = scale * large
        near += int(gradient[3] >= 8192)
        update(variables, [tf.constant(gradient), tf.constant(0.0)], slots, tf.constant(0.0))
        if number % 8 == 7:
            factor = 0.5 if near > 1e-5 * 8 * 1001 else 2.0
            scale = scale * factor if 1 <= scale * factor < 32768 else scale
            near = 0
        scales.append(scale)
        found.append(float(optimiser.scale.numpy()))
    assert found == scales
    assert found[7] == 2.0 and found[149] == 16384.0 and min(found[150:]) == found[285] == 1.0
    assert float(optimiser.scaled(tf.constant(2.0))) == 2.0 * scale


def test_one_large_gradient_among_many_does_not_lower_the_scale(tf: Any) -> None:
    optimiser: Any = recipe(auto_loss_scaling=True).optimiser_for(tf)
    variable = tf.Variable(np.zeros(200_000, np.float32))
    slots = optimiser.slots([variable])
    gradient = np.zeros(200_000, np.float32)
    gradient[7] = 1e4
    update = tf.function(optimiser.update, autograph=False)
    for _ in range(8):
        update([variable], [tf.constant(gradient)], slots, tf.constant(0.0))
    assert float(optimiser.scale.numpy()) == 2.0


@pytest.mark.parametrize("ipu", [False, True])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_an_update_that_is_not_finite_leaves_the_weights(tf: Any, bad: float, ipu: bool) -> None:
    """On a host, and compiled as a whole like a program for IPUs."""
    made = recipe(auto_loss_scaling=True, weight_decay=DECAY)
    optimiser: Any = made.optimiser_for(tf, fuse=not ipu)
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]
    slots = optimiser.slots(variables)
    optimiser.scale.assign(4.0)
    update = tf.function(optimiser.update, autograph=False, jit_compile=ipu)
    slopes = [tf.constant([4.0, 8.0]), tf.constant(4.0)]
    update(variables, slopes, slots, tf.constant(0.5))
    good = [1 - 0.5 * (1 + DECAY), 2 - 0.5 * (2 + 2 * DECAY), 3 - 0.5 * (1 + 3 * DECAY)]
    assert [*variables[0].numpy(), variables[1].numpy()] == pytest.approx(good)
    for _ in range(7):
        update(variables, [tf.constant([1.0, bad]), tf.constant(1.0)], slots, tf.constant(0.5))
    assert [*variables[0].numpy(), variables[1].numpy()] == pytest.approx(good)
    assert float(optimiser.scale.numpy()) == 2.0


def test_the_rule_has_the_values_of_the_sdks_keras_optimiser() -> None:
    module = "keras.ipu.optimizers.als_optimizer"
    described = sdk_api.description("tensorflow_ipu.json")["modules"][module]["classes"]
    ours = {
        "initial_loss_scaling_factor": auto_scaling.FIRST,
        "update_frequency": auto_scaling.UPDATES,
        "increase_factor": auto_scaling.RAISE,
        "max_loss_scaling_factor": auto_scaling.MOST,
        "ratio_threshold": auto_scaling.THRESHOLD,
    }
    defaults = described["ALSDefaults"]["attributes"]
    assert ours == {name: float(defaults[name]["default"]) for name in ours}
    assert defaults["histogram_bin_edge"]["default"] == "2 ** 13"
    assert auto_scaling.EDGE == 2**13
    # The decrease cannot be set: it undoes an increase.
    assert "decrease_factor" not in defaults
    assert auto_scaling.LOWER == 1 / auto_scaling.RAISE


# --- pixels ----------------------------------------------------------------------------------


def test_pixels_are_those_of_the_data_sets(tf: Any) -> None:
    images = np.random.RandomState(2).randint(0, 256, (3, 8, 8, 3)).astype(np.uint8)
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    wanted = {
        ("imagenet", False): (images / 255.0 - mean) / deviation,
        ("imagenet", True): (images / 255.0 - mean) / deviation,
        ("mnist", False): images / 255.0,
        ("cifar10", False): tf.image.per_image_standardization(images).numpy(),
        ("", False): images.astype(np.float64),
    }
    for (dataset, fused), reference in wanted.items():
        for compiled, given in itertools.product((False, True), (np.uint8, np.float32)):
            apply = tf.function(
                lambda pixels, d=dataset, f=fused: preprocess(tf, pixels, tf.float32, d, f),
                jit_compile=compiled,
                autograph=False,
            )
            found = apply(tf.constant(images.astype(given))).numpy()
            np.testing.assert_allclose(found, reference, rtol=1e-5, atol=2e-6)
    short = preprocess(tf, tf.constant(images), tf.bfloat16, "imagenet", True)
    assert short.dtype == tf.bfloat16
    np.testing.assert_allclose(
        tf.cast(short, tf.float32).numpy(), wanted["imagenet", True], rtol=2.0**-8, atol=1e-6
    )


def test_cifar_images_are_mirrored_individually_and_repeatably_with_a_seed(tf: Any) -> None:
    images = np.random.RandomState(3).randint(0, 256, (64, 4, 6, 3)).astype(np.uint8)
    made = recipe(accelerator_side_preprocess=True)
    labels = tf.zeros([64], tf.int32)

    @tf.function(jit_compile=True, autograph=False)
    def prepared(seed: Any) -> Any:
        return made.prepare(tf, tf.constant(images), labels, None, seed, tf.float32)[0]

    plain, _ = made.prepare(tf, tf.constant(images), labels, None, None, tf.float32)
    straight, mirrored = plain.numpy(), plain.numpy()[:, :, ::-1]
    chosen = []
    for seed in ([0, 1], [0, 2], [0, 1]):
        found = prepared(tf.constant(seed)).numpy()
        same = np.isclose(found, straight, atol=1e-5).all(axis=(1, 2, 3))
        assert np.allclose(found[~same], mirrored[~same], atol=1e-5)
        chosen.append(same.tolist())
    assert 16 < sum(chosen[0]) < 48
    assert chosen[0] == chosen[2] != chosen[1]


# --- whole updates ---------------------------------------------------------------------------


def test_an_image_of_one_colour_becomes_zero_and_normalised_images_stay(tf: Any) -> None:
    grey, labels = tf.fill([2, 4, 4, 3], 7.0), tf.constant([1, 2])
    made = recipe(accelerator_side_preprocess=True)
    images, targets = made.prepare(tf, grey, labels, None, None, tf.float32)
    assert not images.numpy().any()
    assert targets.labels is labels and targets.shares is None
    images, _ = made.prepare(tf, grey, labels, None, None, tf.float16, normalised=True)
    assert images.dtype == tf.float16 and (images.numpy() == 7).all()


# --- whole updates ---------------------------------------------------------------------------


def test_host_updates_agree_with_numpy(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of each micro batch come from a tape, their mean and the optimiser from NumPy."""
    small.use_batches(monkeypatch)
    made: Any = recipe(
        momentum=0.9,
        weight_decay=1e-2,
        label_smoothing=0.09 * 1000 / 999,  # the share of other classes than the label's
        initial_learning_rate=1e-3 / 3,
        warmup_mode="mask",
        warmup_epochs=1.0,
        l2_regularization=1e-3,
        loss_scaling=64.0,
        gradient_accumulation_count=3,
        precision="32.32",
        dataset="imagenet",
        accelerator_side_preprocess=True,
        fused_preprocessing=True,
    )
    feed = small.feed(training=True)
    host = TensorFlowHost(CpuDevice(pin=False)).training(network(), made, feed)
    host.build()
    start = small.values(host.classifier.trainable_variables)
    host._run = host._compiled(host._input.source())
    host.run(2)
    classifier = network()(tf, dtype=tf.float32)
    variables = classifier.trainable_variables
    for variable, first in zip(variables, start):
        variable.assign(first)
    pixels, labels = small.batches()
    images = (pixels / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    velocity: List[Any] = [0.0] * len(variables)
    for update in range(2):
        gradients = []
        for number in range(3 * update, 3 * update + 3):
            target = np.eye(CLASSES)[labels[number]] * 0.9 + 0.1 / CLASSES
            with tf.GradientTape() as tape:
                image = tf.constant(images[number], tf.float32)
                logits = classifier(image, ForwardPass(training=True))
                logs = target.astype(np.float32) * tf.nn.log_softmax(logits)
                loss = -tf.reduce_mean(tf.reduce_sum(logs, axis=1))
            gradients.append([g.numpy() for g in tape.gradient(loss, variables)])
        rate = 1e-3 * BATCH * min(1.0, (update + 1) / (PER_EPOCH + 1))
        for index, variable in enumerate(variables):
            w = variable.numpy()
            mean = sum(found[index] for found in gradients) / 3
            velocity[index] = 0.9 * velocity[index] - rate * (mean + 1e-3 * w)
            variable.assign(w + velocity[index] - rate * 1e-2 * w)
    for mine, other, first in zip(
        small.values(host.classifier.trainable_variables), variables, start
    ):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-3, atol=2e-5)
        assert np.abs(mine - first).max() > 1e-4
    host.close()
