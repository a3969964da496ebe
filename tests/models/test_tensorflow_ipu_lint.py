"""Each check of the IPU lint finds its problem, and nothing in a program without it."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipubench.bench_kernels import bench_rnn
from ipubench.bench_kernels.bench_rnn import Rnn
from scripts import ipu_lint
from scripts.hlo_loops import Module
from scripts.ipu_lint import CHECKS, Program
from tests.doubles.tensorflow_ipu.batch_norms import batch_norms_of_half
from tests.doubles.tensorflow_ipu.record import STAND_IN
from tests.support.tensorflow_ipu import SYNTHETIC

pytestmark = [pytest.mark.framework, pytest.mark.nightly]


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def program(
    tf: Any, body: Callable[..., Any], *shapes: Any, compute: str = "float16", wide: bool = False
) -> Program:
    """Return the program of a function of tensors: float16 unless their shapes are specs."""
    specs = [s if isinstance(s, tf.TensorSpec) else tf.TensorSpec(s, tf.float16) for s in shapes]
    function = tf.function(body, jit_compile=True, autograph=False)
    concrete = function.get_concrete_function(*specs)

    def hlo() -> str:
        given = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
        return str(function.experimental_get_compiler_ir(*given)(stage="hlo"))

    return Program("one", concrete, compute, wide, hlo)


def found(made: Program) -> Dict[str, int]:
    """Return check -> number of findings, for checks that find something."""
    counts = {name: len(check(made)) for name, check in CHECKS.items()}
    return {name: count for name, count in counts.items() if count}


IMAGES = [2, 4, 4, 8]


def normalised(tf: Any, dtype: Any) -> Callable[[Any], Any]:
    def body(images: Any) -> Any:
        one, none = tf.ones([8], dtype), tf.zeros([0], dtype)
        with batch_norms_of_half(tf):
            norm = tf.raw_ops.FusedBatchNormV3
            return norm(x=images, scale=one, offset=one, mean=none, variance=none)[0]

    return body


def wide_relu(tf: Any, images: Any) -> Any:
    return tf.cast(tf.nn.relu(tf.cast(images, tf.float32)), tf.float16)


def host_function(tf: Any, x: Any) -> Any:
    value = tf.numpy_function(lambda x: x, [x], tf.float16)
    value.set_shape(x.shape)
    return value


def random_integers(tf: Any, x: Any) -> Any:
    whole = tf.random.stateless_uniform([3], [1, 2], None, None, tf.int32)
    return x + tf.cast(whole, tf.float16)


def of_stand_in(tf: Any, x: Any) -> Any:
    with tf.name_scope(STAND_IN):
        return tf.cast(tf.math.bessel_i0e(tf.cast(x, tf.float32)), tf.float16)


def while_loop(tf: Any, x: Any, first: int, most: Any) -> Any:
    """A loop of five steps within one of three."""

    def one(count: Any, value: Any) -> Any:
        return count + 1, tf.tanh(value)

    def inner(number: Any, value: Any) -> Any:
        start = (tf.constant(first), value)
        ended = tf.while_loop(lambda c, _: c < 5, one, start, maximum_iterations=most)
        return number + 1, ended[1]

    return tf.while_loop(lambda number, _: number < 3, inner, (tf.constant(0), x))[1]


#: What a program does, the shape or (shape, type) of its input, further options, the findings.
CASES: Dict[str, Tuple[Callable[[Any, Any], Any], Any, Dict[str, Any], Dict[str, int]]] = {
    "one type": (lambda tf, x: normalised(tf, tf.float16)(x), IMAGES, {}, {}),
    "unregistered": (lambda tf, x: tf.math.bessel_i0e(x), [3], {}, {"operations": 1}),
    "bytes": (lambda tf, x: tf.cast(x, tf.float16), (IMAGES, "uint8"), {}, {}),
    "norm": (lambda tf, x: normalised(tf, tf.float32)(x), IMAGES, {}, {"norms": 1}),
    "wide norm": (lambda tf, x: normalised(tf, tf.float32)(x), IMAGES, {"wide": True}, {}),
    "cast": (wide_relu, IMAGES, {}, {"casts": 1, "largest": 1}),
    "cast of bytes": (wide_relu, (IMAGES, "uint8"), {}, {"casts": 1, "largest": 1}),
    "float32": (wide_relu, IMAGES, {"compute": "float32"}, {}),
    "larger": (
        lambda tf, x: tf.cast(tf.cast(x, tf.float32), tf.float16),
        [8, 8],
        {},
        {"largest": 1},
    ),
    "random": (random_integers, [3], {}, {"random": 1, "operations": 1}),
    "constant": (
        lambda tf, x: x * tf.constant(np.zeros([1 << 18, 3], np.float16)),
        [3],
        {},
        {"constants": 1},
    ),
    "host": (host_function, [3], {}, {"host": 1, "operations": 1}),
    "stand-in": (of_stand_in, [3], {}, {}),
    "repeats": (lambda tf, x: while_loop(tf, x, 0, None), [3], {}, {}),
    "from 1": (lambda tf, x: while_loop(tf, x, 1, None), [3], {}, {}),
    "at most 5": (lambda tf, x: while_loop(tf, x, 0, 5), [3], {}, {}),
    "while": (lambda tf, x: while_loop(tf, x, 1, 4), [3], {}, {"loops": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_check_finds_its_problem(tf: Any, name: str) -> None:
    body, shape, options, wanted = CASES[name]
    if isinstance(shape, tuple):
        shape = tf.TensorSpec(shape[0], tf.as_dtype(shape[1]))
    assert found(program(tf, partial(body, tf), shape, **options)) == wanted


@pytest.mark.parametrize("name", ["float64", "bfloat16", "uint8"])
def test_a_type_that_ipus_lack(tf: Any, name: str) -> None:
    spec = tf.TensorSpec([3], tf.as_dtype(name))
    assert found(program(tf, lambda x: tf.cast(x + x, tf.float16), spec))["operations"] >= 1


def test_a_loop_until_a_value_is_reached(tf: Any) -> None:
    def body(x: Any) -> Any:
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 9, lambda x: (x + 1,), (x,))

    (loop,) = Module(program(tf, body, [3]).hlo()).loops()
    assert loop[1]


def test_an_unknown_shape(tf: Any) -> None:
    assert found(program(tf, tf.nn.relu, [None, 3]))["shapes"] >= 1


def test_a_case_is_traced_as_it_runs(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", SYNTHETIC)
    few = Rnn(system="ipu", mode="training", data="synthetic", hidden_size=4, batches_per_step=2)
    with ipu_lint.traced("rnn", few, bench_rnn.bench_rnn) as made:
        assert made.compute == "float16"
        assert ipu_lint.time_loops(made) == 2
        assert found(made) == {}
