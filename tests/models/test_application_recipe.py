"""The application's recipe: rates, optimisers, regularisation, loss scaling, pixels, whole updates.

Against formulas written again in NumPy, and against Keras where it has the same.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import pytest

from ipubench.bench_training.training import Training
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.tensorflow.on_host import TensorFlowHost
from ipubench.fixtures.runtimes.tensorflow.on_ipu import TensorFlowIpu
from ipubench.models.tensorflow.training import auto_scaling, optimisers
from ipubench.models.tensorflow.training.application import ApplicationRecipe
from ipubench.models.tensorflow.training.application_schedules import LearningRate
from ipubench.models.tensorflow.training.inputs import preprocess
from ipubench.models.tensorflow.training.recipe import Targets
from tests.support import sdk_api
from tests.support import tensorflow_ipu as small
from tests.support.tensorflow_cnn import CLASSES, network

pytestmark = pytest.mark.framework

PER_EPOCH, EPOCHS, BATCH = 7, 6, 64
DECAY, L2 = 0.05, 0.02
NAMED = {"net/conv/kernel": (3, 40), "net/norm/gamma": (40,), "net/fc/bias": (7,)}
RATES = (0.0, 0.1, 0.05, 0.2, 0.01)


def recipe(**options: Any) -> ApplicationRecipe:
    needed = {"global_batch_size": BATCH, "updates_per_epoch": PER_EPOCH}
    of_rate = {field.name for field in fields(LearningRate)}
    rate = LearningRate(**{**needed, **{k: v for k, v in options.items() if k in of_rate}})
    others = {key: value for key, value in options.items() if key not in of_rate}
    return ApplicationRecipe(rate, EPOCHS, CLASSES, **others)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.fixture(scope="module")
def keras(tf: Any) -> Any:
    """Keras 2, whose optimisers the original's are; in TensorFlow 2.6 it is TensorFlow's own."""
    if tf.keras.__version__.startswith("2."):
        return tf.keras
    return pytest.importorskip("tf_keras", reason="pip install tf-keras adds Keras 2")


# --- rates -----------------------------------------------------------------------------------

SCHEDULES: Dict[str, Dict[str, Any]] = {
    "const": {},
    "cosine": {"epochs_to_total_decay": 4.5},
    "stepped": {"boundaries": (1.0, 2.5, 4.0), "values": (0.4, 0.2, 0.3, 0.1)},
    "polynomial": {"epochs_to_total_decay": 5.0, "end_learning_rate_ratio": 0.01, "power": 2.0},
}
FIRST = 0.01 * BATCH
SPAN = np.arange(8 * PER_EPOCH)  # past the end of every schedule


def value(schedule: str, t: float) -> float:
    """Return a schedule of SCHEDULES at an update, without warm-up."""
    if schedule == "const":
        return FIRST
    if schedule == "cosine":
        return FIRST * (1 + math.cos(math.pi * min(1.0, t / 31))) / 2  # int(4.5 * 7)
    if schedule == "polynomial":
        return FIRST * (0.01 + 0.99 * max(0.0, 1 - t / 35) ** 2)
    return 0.4 if t <= 7 else 0.2 if t <= 17 else 0.3 if t <= 28 else 0.1


@pytest.mark.parametrize(
    ("schedule", "warmup", "stairs"),
    list(itertools.product(SCHEDULES, ("", "shift", "mask"), (False, True))),
)
def test_a_rate_is_its_formula(schedule: str, warmup: str, stairs: bool) -> None:
    epochs = 1.5 if warmup else 0.0
    made = recipe(
        schedule=schedule,
        initial_learning_rate=0.01,
        warmup_mode=warmup,
        warmup_epochs=epochs,
        staircase=stairs,
        **SCHEDULES[schedule],
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
    assert [made.rate(int(t)) for t in SPAN] == pytest.approx(wanted, rel=1e-12)


def test_rates_are_those_of_keras(keras: Any) -> None:
    """Of its piecewise constant, polynomial and cosine schedules."""
    schedules = keras.optimizers.schedules
    cosine = getattr(schedules, "CosineDecay", None) or keras.experimental.CosineDecay
    theirs = {
        "stepped": schedules.PiecewiseConstantDecay([7, 17, 28], [0.4, 0.2, 0.3, 0.1]),
        "polynomial": schedules.PolynomialDecay(FIRST, 35, 0.01 * FIRST, power=2.0),
        "cosine": cosine(FIRST, 31),
    }
    for name, reference in theirs.items():
        ours = recipe(schedule=name, initial_learning_rate=0.01, **SCHEDULES[name])
        wanted = [float(reference(float(t))) for t in SPAN]
        assert [ours.rate(int(t)) for t in SPAN] == pytest.approx(wanted, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup_epochs": 2.0}, "warmup_mode, shift or mask"),
        ({"schedule": "cosine"}, "epochs_to_total_decay of at least one weight update, not 0"),
        ({"schedule": "stepped", "values": (1.0,), "boundaries": (1.0,)}, "1 values for 1 bound"),
        (
            {"schedule": "stepped", "values": (1.0, 2.0, 3.0), "boundaries": (2.0, 1.0)},
            "do not rise",
        ),
        ({"momentum": 1.0}, "momentum=1 is not in"),
        ({"optimizer": "lars", "weight_decay": 1e-4}, "a weight_decay of its own"),
        ({"optimizer": "rmsprop", "weight_decay": 1e-4}, "set l2_regularization"),
        (
            {"optimizer": "rmsprop", "rmsprop_base_decay_exponent": -6},
            r"1 - 2\^-6 \* 64, is not in \(0, 1\): choose another base_decay_exponent",
        ),
        ({"optimizer": "rmsprop", "rmsprop_base_decay_exponent": -60}, r"1 - 2\^-60 \* 64"),
        ({"loss_scaling": 1e39}, r"loss_scaling=1e\+39 is not a float32 above 0"),
        ({"label_smoothing": 1.0}, "label_smoothing=1 is not"),
        ({"auto_loss_scaling": True, "optimizer": "lars"}, "leave out the optimizer lars"),
        (
            {"auto_loss_scaling": True, "momentum": 0.9, "loss_scaling": 128.0},
            "momentum 0.9, loss_scaling=128",
        ),
        (
            {"auto_loss_scaling": True, "warmup_mode": "mask", **SCHEDULES["cosine"]},
            "the warm-up mask",
        ),
    ],
)
def test_a_value_without_meaning_is_refused(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(**options).check()


# --- optimisers ------------------------------------------------------------------------------


@pytest.fixture(params=["plain", "fused"])
def fuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both forms of an update; only the kernel is large, so that both are mixed."""
    monkeypatch.setattr(optimisers, "FUSED_FROM", 100)
    return bool(request.param == "fused")


def drawn() -> Tuple[List[Any], List[List[Any]]]:
    """Return weights, and for each of RATES gradients; float32."""
    generator = np.random.RandomState(0)

    def one() -> List[Any]:
        return [generator.normal(size=shape).astype(np.float32) for shape in NAMED.values()]

    return one(), [one() for _ in RATES]


def updated(
    tf: Any, made: ApplicationRecipe, fuse: bool = True, dtype: str = "float32"
) -> Tuple[List[Any], List[List[Any]]]:
    """Return variables and slots after one update for each of RATES."""
    weights, gradients = drawn()
    variables = [tf.Variable(tf.cast(w, dtype), name=name) for name, w in zip(NAMED, weights)]
    optimiser = made.optimiser_for(tf, fuse=fuse)
    slots = optimiser.slots(variables)

    @tf.function(autograph=False)
    def update(rate: Any, *slopes: Any) -> None:
        optimiser.update(variables, slopes, slots, rate)

    for rate, slopes in zip(RATES, gradients):
        scaled = [tf.cast(made.loss_scaling * slope, dtype) for slope in slopes]
        update(tf.constant(rate), *scaled)
    return variables, slots


def numpy_sgd(w: Any, g: Any, s: Dict[str, Any], rate: float, norm_or_bias: bool) -> Any:
    s["v"] = 0.8 * s.get("v", 0) - rate * g
    return w + s["v"] - rate * DECAY * w


def numpy_lars(w: Any, g: Any, s: Dict[str, Any], rate: float, norm_or_bias: bool) -> Any:
    if not norm_or_bias:
        length = np.sqrt((w * w).sum())
        trust = 0.001 * length / (np.sqrt((g * g).sum()) + DECAY * length + 1e-7)
        g = trust * (g + DECAY * w)
    s["v"] = 0.8 * s.get("v", 0) + rate * g
    return w - s["v"]


def numpy_rmsprop(w: Any, g: Any, s: Dict[str, Any], rate: float, norm_or_bias: bool) -> Any:
    rho = 1 - 2.0**-9 * BATCH
    s["s"] = rho * s.get("s", 0) + (1 - rho) * g * g
    s["v"] = 0.8 * s.get("v", 0) + rate * g / np.sqrt(s["s"] + 0.01)
    return w - s["v"]


RMSPROP = {"optimizer": "rmsprop", "rmsprop_base_decay_exponent": -9, "rmsprop_epsilon": 0.01}
OPTIMISERS: Dict[str, Tuple[Callable[..., Any], Dict[str, Any]]] = {
    "sgd": (numpy_sgd, {"weight_decay": DECAY}),
    "lars": (numpy_lars, {"optimizer": "lars", "lars_weight_decay": DECAY}),
    "rmsprop": (numpy_rmsprop, RMSPROP),
}


@pytest.mark.parametrize("l2", [0.0, L2])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_is_numpys(tf: Any, name: str, l2: float, fuse: bool) -> None:
    """With loss scaling, which changes nothing; L2 is in every gradient, also of norms."""
    reference, options = OPTIMISERS[name]
    made = recipe(momentum=0.8, l2_regularization=l2, loss_scaling=128.0, **options)
    made.check()
    variables, _ = updated(tf, made, fuse)
    weights, gradients = drawn()
    for index, (key, variable) in enumerate(zip(NAMED, variables)):
        state: Dict[str, Any] = {}
        w = weights[index].astype(np.float64)
        for rate, slopes in zip(RATES, gradients):
            g = slopes[index].astype(np.float64) + l2 * w
            w = reference(w, g, state, rate, "kernel" not in key)
        np.testing.assert_allclose(variable.numpy(), w, rtol=2e-5, atol=2e-6)
        assert np.abs(w - weights[index]).max() > 1e-4


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
def test_an_optimiser_is_that_of_keras(tf: Any, keras: Any, name: str, momentum: float) -> None:
    optimizers = getattr(keras.optimizers, "legacy", keras.optimizers)
    rate = tf.Variable(0.0)
    if name == "sgd":
        reference, options = optimizers.SGD(rate, momentum=momentum), {}
    else:
        reference = optimizers.RMSprop(rate, rho=0.875, momentum=momentum, epsilon=0.01)
        options = RMSPROP
    weights, gradients = drawn()
    wanted = [tf.Variable(weight) for weight in weights]
    for now, slopes in zip(RATES, gradients):
        rate.assign(now)
        reference.apply_gradients(zip([tf.constant(slope) for slope in slopes], wanted))
    variables, slots = updated(tf, recipe(momentum=momentum, **options))
    for variable, other in zip(variables, wanted):
        np.testing.assert_allclose(variable.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
    # Nothing is kept that is not needed.
    assert {len(own) for own in slots} == {(name == "rmsprop") + (momentum > 0)}


def test_weight_decay_and_l2_agree_without_momentum_only(tf: Any) -> None:
    def difference(momentum: float) -> float:
        decayed, _ = updated(tf, recipe(momentum=momentum, weight_decay=DECAY))
        regularised, _ = updated(tf, recipe(momentum=momentum, l2_regularization=DECAY))
        plain, _ = updated(tf, recipe(momentum=momentum))
        for one, other in zip(decayed, plain):  # on every variable, also of norms and biases
            assert np.abs(one.numpy() - other.numpy()).max() > 1e-3
        pairs = zip(decayed, regularised)
        return float(max(np.abs(a.numpy() - b.numpy()).max() for a, b in pairs))

    assert difference(0.0) < 1e-6
    assert difference(0.8) > 1e-3


def test_lars_leaves_the_rate_of_norms_and_biases(tf: Any) -> None:
    """They are updated as by SGD with momentum, without LARS' weight decay."""
    lars, _ = updated(tf, recipe(optimizer="lars", momentum=0.8, lars_weight_decay=DECAY))
    sgd, _ = updated(tf, recipe(momentum=0.8))
    apart = [np.abs(one.numpy() - other.numpy()).max() for one, other in zip(lars, sgd)]
    assert apart[0] > 0.1
    assert max(apart[1:]) < 1e-6


def test_lars_with_a_weight_or_a_gradient_of_zeros_is_finite(tf: Any) -> None:
    optimiser = recipe(optimizer="lars").optimiser_for(tf)
    variables = [tf.Variable([0.0, 0.0], name="a"), tf.Variable([1.0, 2.0], name="b")]
    slots = optimiser.slots(variables)
    slopes = [tf.constant([1.0, 1.0]), tf.constant([0.0, 0.0])]
    tf.function(optimiser.update, autograph=False)(variables, slopes, slots, tf.constant(0.5))
    assert variables[0].numpy().tolist() == [-0.5, -0.5]
    assert variables[1].numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_are_rounded_once_an_update(tf: Any, dtype: str, fuse: bool) -> None:
    """Weights and slots have the dtype; the first update that moves is exact but for rounding."""
    made = recipe(momentum=0.8, weight_decay=DECAY, l2_regularization=L2)
    variables, slots = updated(tf, made, fuse, dtype)
    exact, _ = updated(tf, made, fuse)
    epsilon = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    for variable, own, other in zip(variables, slots, exact):
        assert {variable.dtype.name, *(slot.dtype.name for slot in own)} == {dtype}
        found, wanted = tf.cast(variable, tf.float32).numpy(), other.numpy()
        scale = np.abs(wanted).max()
        assert 0 < np.abs(found - wanted).max() < 4 * epsilon * scale


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


def test_loss_scaling_off_is_one() -> None:
    """Runtimes multiply by it."""
    assert recipe().loss_scaling == recipe(loss_scaling=1.0).loss_scaling == 1.0
    assert replace(recipe(), momentum=0.5).loss_scaling == 1.0
    assert recipe(loss_scaling=128.0).loss_scaling == 128.0


# --- automatic loss scaling ------------------------------------------------------------------


def test_the_scale_follows_the_share_near_overflow(tf: Any) -> None:
    """Against the rule in plain numbers: raised, held below the limit, lowered, never below 1."""
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
    """On a host, and compiled as a whole, as a program on IPUs is."""
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


def test_the_values_of_the_rule_are_those_of_the_sdks_keras_optimiser() -> None:
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
    # A decrease cannot be chosen: it undoes an increase.
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


def test_cifar_images_are_mirrored_one_by_one_and_again_with_the_seed(tf: Any) -> None:
    images = np.random.RandomState(3).randint(0, 256, (64, 4, 6, 3)).astype(np.uint8)
    made = recipe(preprocess="cifar10")
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


def test_an_image_of_one_colour_is_zero_and_normalised_images_stay(tf: Any) -> None:
    grey = tf.fill([2, 4, 4, 3], 7.0)
    labels = tf.constant([1, 2])
    made = recipe(preprocess="cifar10")
    images, targets = made.prepare(tf, grey, labels, None, None, tf.float32)
    assert not images.numpy().any()
    assert targets.labels is labels and targets.shares is None
    images, _ = made.prepare(tf, grey, labels, None, None, tf.float16, normalised=True)
    assert images.dtype == tf.float16 and (images.numpy() == 7).all()


# --- whole updates ---------------------------------------------------------------------------

UPDATES: Dict[str, Dict[str, Any]] = {
    "momentum": {"momentum": 0.9, "weight_decay": 1e-2, "label_smoothing": 0.1},
    "lars": {"optimizer": "lars", "momentum": 0.9, "lars_weight_decay": 1e-2},
}
COMMON: Dict[str, Any] = {
    "initial_learning_rate": 1e-3,
    "warmup_mode": "mask",
    "warmup_epochs": 1.0,
    "l2_regularization": 1e-3,
    "loss_scaling": 64.0,
    "gradient_accumulation": 3,
    "preprocess": "imagenet",
    "fused": True,
}


def config(**changes: Any) -> Training:
    """Return the options of the runtimes; the recipe is given apart."""
    options = {"name": "small", "precision": "32.32", "micro_batch_size": small.BATCH}
    return Training(**{**options, "data": "generated", "batches_per_step": 2, **changes})


def on_host(made: Any, updates: int) -> Any:
    """Return a host's step after some updates, and the weights before them."""
    feed = small.feed(training=True)
    host = TensorFlowHost(CpuDevice(pin=False)).training(network(), made, config(), feed)
    host.build()
    start = small.values(host.classifier.trainable_variables)
    host._run = host._compiled(host._input.source())
    for _ in range(updates):
        host.run(1)
    return host, start


def test_a_hosts_updates_are_numpys(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of each micro batch from a tape, their mean and the optimiser from NumPy."""
    small.use_batches(monkeypatch)
    made = recipe(**UPDATES["momentum"], **COMMON)
    host, start = on_host(made, 4)
    classifier = network()(tf, dtype=tf.float32)
    variables = classifier.trainable_variables
    for variable, first in zip(variables, start):
        variable.assign(first)
    pixels, labels = small.batches()
    images = (pixels / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    from ipubench.models.tensorflow.cnn.run import ForwardPass

    velocity: List[Any] = [0.0] * len(variables)
    for update in range(4):
        sums: Optional[List[Any]] = None
        for micro in range(3):
            number = 3 * update + micro
            target = np.eye(CLASSES)[labels[number]] * 0.9 + 0.1 / CLASSES
            with tf.GradientTape() as tape:
                logits = classifier(
                    tf.constant(images[number], tf.float32), ForwardPass(training=True)
                )
                loss = -tf.reduce_mean(
                    tf.reduce_sum(target.astype(np.float32) * tf.nn.log_softmax(logits), axis=1)
                )
            found = [g.numpy() for g in tape.gradient(loss, variables)]
            sums = found if sums is None else [a + b for a, b in zip(sums, found)]
        assert sums is not None
        rate = 1e-3 * BATCH * min(1.0, (update + 1) / (PER_EPOCH + 1))
        for index, variable in enumerate(variables):
            w = variable.numpy()
            velocity[index] = 0.9 * velocity[index] - rate * (sums[index] / 3 + 1e-3 * w)
            variable.assign(w + velocity[index] - rate * 1e-2 * w)
    for mine, other, first in zip(
        small.values(host.classifier.trainable_variables), variables, start
    ):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-3, atol=2e-5)
        assert np.abs(mine - first).max() > 1e-4
    host.close()


def test_automatic_scaling_changes_no_update_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine updates, so that the last is at another scale than the first."""
    small.use_batches(monkeypatch)
    options = {"initial_learning_rate": 1e-3, "preprocess": "imagenet"}
    plain, start = on_host(recipe(**options), 9)
    scaled, _ = on_host(recipe(auto_loss_scaling=True, **options), 9)
    assert float(scaled._update.optimiser.scale.numpy()) == 2.0
    assert scaled.loss == pytest.approx(plain.loss, rel=1e-5)
    for one, other, first in zip(
        small.values(scaled.classifier.trainable_variables),
        plain.classifier.trainable_variables,
        start,
    ):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-6)
        assert np.abs(one - first).max() > 1e-4
    for step in (plain, scaled):
        step.close()


@pytest.mark.parametrize(("shards", "name"), [(2, "momentum"), (1, "lars")])
def test_an_ipus_updates_are_a_hosts(
    monkeypatch: pytest.MonkeyPatch, shards: int, name: str
) -> None:
    """The pipeline and the loop; the rate is constant in a call, so calls have one update."""
    small.install(monkeypatch)
    small.use_batches(monkeypatch)
    # A pipeline takes whole turns of its stages.
    made: Any = recipe(**UPDATES[name], **{**COMMON, "gradient_accumulation": 4})
    options = config(
        system="ipu",
        shards=shards,
        pipeline=shards > 1,
        pipeline_splits=small.SPLITS[shards],
        gradient_accumulation_count=4,
        batches_per_step=1,
    )
    runtime = TensorFlowIpu(small.HARDWARE)
    program = runtime.training(network(), made, options, small.feed(training=True))
    program.build()
    program.compile()  # the first update
    program()
    host, start = on_host(made, 2)
    assert program.updates == host.updates == 2
    assert program.loss == pytest.approx(host.loss, rel=1e-4)
    assert {len(own) for own in program._update.slots} == {1}
    ours, theirs = program.classifier.trainable_variables, host.classifier.trainable_variables
    for mine, other, first in zip(small.values(ours), small.values(theirs), start):
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=2e-5)
        assert np.abs(mine - first).max() > 1e-6
    program.close()
    host.close()


def test_there_are_no_slots_without_momentum(tf: Any) -> None:
    for options in ({}, {"auto_loss_scaling": True}):
        optimiser = recipe(**options).optimiser_for(tf, fuse=False)
        assert optimiser.slots([tf.Variable(1.0)]) == [[]]
