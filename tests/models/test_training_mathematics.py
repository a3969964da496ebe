"""Optimisers, mixed images, losses, inputs and averages compared with NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.models.tensorflow.training import inputs, losses, mixing, optimisers
from ipubench.models.tensorflow.training.optimisers import (
    Lars,
    Momentum,
    Optimiser,
    RMSprop,
    WeightAverages,
    default_rmsprop_decay,
)

pytestmark = pytest.mark.framework

NAMED = {"net/conv/kernel": (3, 40), "net/norm/gamma": (40,), "net/fc/bias": (7,)}
DECAY = 0.01
RATES = (0.0, 0.1, 0.05, 0.2)


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def values() -> Tuple[List[Any], List[List[Any]]]:
    """Return weights, and gradients for each update; float32."""
    generator = np.random.RandomState(0)

    def drawn() -> List[Any]:
        return [generator.normal(size=shape).astype(np.float32) for shape in NAMED.values()]

    return drawn(), [drawn() for _ in RATES]


def trained(
    tf: Any, optimiser: Any, dtype: Any = "float32", scaling: float = 1.0
) -> Tuple[List[Any], List[List[Any]]]:
    """Return variables and slots after one update for each of RATES."""
    weights, gradients = values()
    variables = [
        tf.Variable(tf.cast(weight, dtype), name=name) for name, weight in zip(NAMED, weights)
    ]
    slots = optimiser.slots(variables)

    @tf.function(autograph=False)
    def update(rate: Any, *slopes: Any) -> None:
        optimiser.update(variables, slopes, slots, rate)

    for rate, slopes in zip(RATES, gradients):
        update(tf.constant(rate), *(tf.cast(scaling * slope, dtype) for slope in slopes))
    return variables, slots


def numpy_sgd(w: Any, g: Any, s: Dict[str, Any], rate: float, decayed: bool) -> Any:
    return w - rate * (g + decayed * DECAY * w)


def numpy_momentum(w: Any, g: Any, s: Dict[str, Any], rate: float, decayed: bool) -> Any:
    s["a"] = 0.8 * s.get("a", 0) + g + decayed * DECAY * w
    return w - rate * s["a"]


def numpy_rmsprop(w: Any, g: Any, s: Dict[str, Any], rate: float, decayed: bool) -> Any:
    g = g + decayed * DECAY * w
    s["s"] = s.get("s", np.ones_like(g)) * 0.95 + 0.05 * g**2
    s["m"] = 0.8 * s.get("m", 0) + rate * g / np.sqrt(s["s"] + 1e-3)
    return w - s["m"]


def numpy_lars(w: Any, g: Any, s: Dict[str, Any], rate: float, decayed: bool) -> Any:
    if decayed:
        length = np.linalg.norm(w)
        rate *= float(0.001 * length / (np.linalg.norm(g) + DECAY * length + 0.5))
    return numpy_momentum(w, g, s, rate, decayed)


NUMPY: Dict[str, Callable[..., Any]] = {
    "SGD": numpy_sgd,
    "momentum": numpy_momentum,
    "RMSprop": numpy_rmsprop,
    "LARS": numpy_lars,
}
MOMENTUM: Dict[str, Any] = {"momentum": Momentum(0.8)}
OPTIMISERS: Dict[str, Callable[..., Any]] = {
    "SGD": Optimiser,
    "momentum": partial(Optimiser, **MOMENTUM),
    "RMSprop": partial(RMSprop, decay=0.95, epsilon=1e-3, **MOMENTUM),
    "LARS": partial(Lars, eeta=1e-3, epsilon=0.5, **MOMENTUM),
}


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_agrees_with_numpy(
    tf: Any, name: str, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With loss scaling, which changes nothing."""
    monkeypatch.setattr(optimisers, "FUSED_FROM", 100)  # only the kernel is large
    shared: Dict[str, Any] = {"weight_decay": DECAY, "loss_scaling": 128.0, "fuse": fuse}
    variables, _ = trained(tf, OPTIMISERS[name](tf, **shared), scaling=128.0)
    weights, gradients = values()
    for index, (key, variable) in enumerate(zip(NAMED, variables)):
        state: Dict[str, Any] = {}
        w = weights[index].astype(np.float64)
        for rate, slopes in zip(RATES, gradients):
            w = NUMPY[name](w, slopes[index].astype(np.float64), state, rate, "kernel" in key)
        np.testing.assert_allclose(variable.numpy(), w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "fuse"), [("bfloat16", True), ("float16", False)])
def test_an_update_of_16_bit_weights_is_rounded_once(
    tf: Any, dtype: str, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimisers, "FUSED_FROM", 100)
    weights, gradients = values()
    optimiser = OPTIMISERS["momentum"](tf, fuse=fuse)
    variables = [tf.Variable(tf.cast(w, dtype), name=n) for n, w in zip(NAMED, weights)]
    before = [tf.cast(v, tf.float32).numpy() for v in variables]
    slots = optimiser.slots(variables)
    assert {slot.dtype for own in slots for slot in own} == {tf.as_dtype(dtype)}
    slopes = [tf.cast(g, dtype) for g in gradients[0]]
    tf.function(lambda: optimiser.update(variables, slopes, slots, tf.constant(0.125)))()
    for variable, old, slope in zip(variables, before, slopes):
        # 0.125 is exact in 16 bits and so is the product; only the sum is rounded.
        wanted = tf.cast(old - 0.125 * tf.cast(slope, tf.float32).numpy(), dtype)
        np.testing.assert_array_equal(variable.numpy(), wanted.numpy())


def test_lars_takes_the_plain_rate_if_a_norm_is_zero(tf: Any) -> None:
    optimiser = OPTIMISERS["LARS"](tf)
    variable = tf.Variable(tf.zeros([10, 20]), name="kernel")
    slots = optimiser.slots([variable])
    optimiser.update([variable], [tf.ones([10, 20])], slots, tf.constant(0.5))
    np.testing.assert_array_equal(variable.numpy(), -0.5 * np.ones([10, 20]))


def test_the_default_decay_of_rmsprop() -> None:
    assert default_rmsprop_decay(800, -14) == 1 - 800 / 16384
    assert default_rmsprop_decay(16384, 2000) == -np.inf


# ---------------------------------------------------------------------- mixed images


def images_of(tf: Any, dtype: str = "float32", batch_size: int = 5) -> Any:
    """Return images of one grey level each: image n is n + 1 everywhere."""
    levels = np.arange(1, batch_size + 1).reshape(-1, 1, 1, 1)
    return tf.cast(np.broadcast_to(levels, (batch_size, 20, 30, 3)).astype(np.float32), dtype)


@pytest.mark.parametrize("alpha", [0.01, 1.0, 8.0])
def test_mixup_coefficients_have_the_beta_distribution(tf: Any, alpha: float) -> None:
    draws, again, other = (
        mixing.mixup_coefficients(tf, 20000, alpha, tf.constant([1, seed])).numpy()
        for seed in (2, 2, 3)
    )
    assert (draws == again).all() and (draws != other).any()
    b = np.random.RandomState(0).beta(alpha, alpha, 20000)
    assert draws.min() >= 0.5 and draws.max() <= 1.0
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(
        np.quantile(draws, quantiles), np.quantile(np.maximum(b, 1 - b), quantiles), atol=0.015
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("batch_size", [2, 5])
@pytest.mark.parametrize(("cut", "blend"), [(1.0, False), (1.0, True), (0.85, False), (0.85, True)])
def test_the_shares_match_the_images(
    tf: Any, dtype: str, batch_size: int, cut: float, blend: bool
) -> None:
    coefficients = None
    if blend:
        coefficients = mixing.mixup_coefficients(tf, batch_size, 0.2, tf.constant([0, 1]))
    given = images_of(tf, dtype, batch_size)
    found, labels, shares = mixing.mix(tf, given, tf.range(batch_size), coefficients, cut, [5, 6])
    assert (found.dtype, shares.dtype) == (tf.as_dtype(dtype), tf.float32)
    assert (found is given) == (not blend and cut == 1)
    assert labels.shape == shares.shape == (batch_size, 2 ** (blend + (cut < 1)))
    np.testing.assert_allclose(shares.numpy().sum(1), 1, rtol=1e-6)
    if cut < 1 and not blend:  # of two images the one two places away is itself
        others = np.roll(np.arange(batch_size), 2 if batch_size > 2 else 1)
        np.testing.assert_array_equal(labels.numpy()[:, 1], others)
    # Image n is n + 1 everywhere: its mean level matches its labels.
    levels = tf.cast(found, tf.float32).numpy().mean(axis=(1, 2, 3))
    tolerance = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(
        levels, (shares * tf.cast(labels + 1, tf.float32)).numpy().sum(1), rtol=tolerance
    )


@pytest.mark.parametrize("cut", [0.0, 0.5, 0.999])
def test_cutmix_pastes_one_box_for_the_whole_batch(tf: Any, cut: float) -> None:
    images = images_of(tf).numpy()
    found = [mixing.mix(tf, images_of(tf), tf.range(5), None, cut, [seed, 0]) for seed in (1, 2, 1)]
    for mixed, labels, shares in found:
        changed = (mixed.numpy() != images)[..., 0]
        assert (changed == changed[0]).all()
        np.testing.assert_array_equal(labels.numpy()[:, 1], [3, 4, 0, 1, 2])
        rows, columns = changed[0].any(1).sum(), changed[0].any(0).sum()
        assert changed[0].sum() == rows * columns
        np.testing.assert_allclose([rows / 20, columns / 30], np.sqrt(1 - cut), atol=0.026)
        np.testing.assert_allclose(shares.numpy()[:, 0], 1 - changed.mean((1, 2)), atol=1e-6)
    one, other, again = (mixed.numpy() for mixed, *_ in found)
    np.testing.assert_array_equal(one, again)
    assert cut == 0 or (one != other).any()


def test_mixing_runs_in_a_compiled_step(tf: Any) -> None:
    # XLA draws another box from the same seed.
    step = tf.function(
        lambda c, seed: mixing.mix(tf, images_of(tf), tf.range(5), c, 0.85, seed),
        jit_compile=True,
    )
    images, labels, shares = (part.numpy() for part in step(tf.fill([5], 0.75), [1, 2]))
    np.testing.assert_array_equal(labels[0], [0, 4, 3, 2])
    np.testing.assert_allclose(shares[:, 0], 0.75 * (1 - 8 * 12 / 600), rtol=1e-6)
    np.testing.assert_allclose(images.mean((1, 2, 3)), (shares * (labels + 1)).sum(1), rtol=1e-5)


# ---------------------------------------------------------------------- losses, inputs, averages


@pytest.mark.parametrize(
    ("dtype", "smoothing", "mixed"),
    [("float32", 0.0, False), ("float16", 0.1, False), ("float32", 0.1, True)],
)
def test_the_loss_is_numpys(tf: Any, dtype: str, smoothing: float, mixed: bool) -> None:
    generator = np.random.RandomState(1)
    logits = generator.normal(size=(6, 10)).astype(dtype).astype(np.float64)
    labels = generator.randint(0, 10, (6, 4) if mixed else 6)
    shares = generator.dirichlet(np.ones(4), 6) if mixed else np.ones((6, 1))
    targets = np.full((6, 10), smoothing / 9)
    for row, (classes, parts) in enumerate(zip(labels.reshape(6, -1), shares)):
        for label, share in zip(classes, parts):
            targets[row, label] += share * (1 - smoothing - smoothing / 9)
    np.testing.assert_allclose(targets.sum(1), 1)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    found = losses.cross_entropy(
        tf,
        tf.constant(logits, dtype),
        tf.constant(labels, tf.int32),
        tf.constant(shares, tf.float32) if mixed else None,
        smoothing,
    )
    assert found.dtype == tf.float32
    assert float(found) == pytest.approx(-(targets * logs).sum(1).mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "source", "full"),
    [("float32", "uint8", False), ("bfloat16", "float16", True), ("float32", "uint8", True)],
)
def test_inputs_are_normalised(tf: Any, dtype: str, source: str, full: bool) -> None:
    pixels = np.random.RandomState(2).randint(0, 256, (2, 4, 5, 3))
    wanted = pixels - np.array([123.68, 116.78, 103.94])
    if full:
        wanted = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    found = inputs.normalise(tf, tf.constant(pixels, source), tf.as_dtype(dtype), full)
    assert found.dtype == tf.as_dtype(dtype)
    tolerance = 2**-8 if dtype == "bfloat16" else 1e-5
    np.testing.assert_allclose(
        tf.cast(found, tf.float32).numpy(), wanted, rtol=tolerance, atol=1e-5
    )


def test_averages_are_numpys(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimisers, "FUSED_FROM", 100)
    first, later = values()
    variables = [tf.Variable(tf.cast(weight, tf.bfloat16)) for weight in first]

    def seen() -> List[Any]:
        return [tf.cast(variable, tf.float32).numpy() for variable in variables]

    made = [WeightAverages(tf, variables, 0.97, fuse=fuse) for fuse in (False, True)]
    updates = [tf.function(partial(one.update, variables), autograph=False) for one in made]
    wanted = seen()
    for weights in later:
        for variable, weight in zip(variables, weights):
            variable.assign(tf.cast(weight, tf.bfloat16))
        for update in updates:
            update()
        wanted = [0.97 * old + 0.03 * new for old, new in zip(wanted, seen())]
    for averages in made:
        for average, value in zip(averages.averages, wanted):
            assert average.dtype == tf.float32
            np.testing.assert_allclose(average.numpy(), value, rtol=1e-5, atol=1e-6)
