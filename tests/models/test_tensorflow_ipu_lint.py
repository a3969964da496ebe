"""The lint of IPU programs finds what each check is about, and nothing in a program without it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator

import numpy as np
import pytest

from ipubench.bench_kernels import bench_rnn
from ipubench.bench_kernels.bench_rnn import Rnn
from scripts import ipu_lint
from scripts.hlo_loops import Module
from scripts.ipu_lint import CHECKS, Program, operations
from tests.doubles.tensorflow_ipu.batch_norms import batch_norms_of_half
from tests.doubles.tensorflow_ipu.record import STAND_IN
from tests.support.tensorflow_ipu import SYNTHETIC

pytestmark = pytest.mark.framework


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def program(
    tf: Any, body: Callable[..., Any], *shapes: Any, compute: str = "float16", wide: bool = False
) -> Program:
    """Return what a function of tensors, of float16 unless their shapes are specs, stands for."""
    specs = [s if isinstance(s, tf.TensorSpec) else tf.TensorSpec(s, tf.float16) for s in shapes]
    function = tf.function(body, jit_compile=True, autograph=False)
    concrete = function.get_concrete_function(*specs)

    def hlo() -> str:
        given = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
        return str(function.experimental_get_compiler_ir(*given)(stage="hlo"))

    return Program("one", concrete, compute, wide, hlo)


def found(made: Program) -> Dict[str, int]:
    """Return check -> how much it finds, of those that find anything."""
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


def test_a_program_in_one_type_has_nothing(tf: Any) -> None:
    made = program(tf, normalised(tf, tf.float16), IMAGES)
    assert found(made) == {}
    assert ipu_lint.batch_norms(made) == {"float16/float16": 1}


def test_an_operation_that_is_not_registered(tf: Any) -> None:
    made = program(tf, tf.math.bessel_i0e, [3])
    assert found(made) == {"operations": 1}


@pytest.mark.parametrize("name", ["float64", "bfloat16", "uint8"])
def test_a_type_that_ipus_lack(tf: Any, name: str) -> None:
    spec = tf.TensorSpec([3], tf.as_dtype(name))
    made = program(tf, lambda x: tf.cast(x + x, tf.float16), spec)
    assert set(found(made)) <= {"operations", "largest"} and found(made)["operations"] >= 1


def test_bytes_may_be_cast(tf: Any) -> None:
    spec = tf.TensorSpec(IMAGES, tf.uint8)
    assert found(program(tf, lambda x: tf.cast(x, tf.float16), spec)) == {}


def test_a_batch_norm_that_casts_its_images(tf: Any) -> None:
    body = normalised(tf, tf.float32)
    assert found(program(tf, body, IMAGES)) == {"norms": 1}
    assert found(program(tf, body, IMAGES, wide=True)) == {}


def test_a_cast_of_whole_images(tf: Any) -> None:
    def body(images: Any) -> Any:
        return tf.cast(tf.nn.relu(tf.cast(images, tf.float32)), tf.float16)

    assert found(program(tf, body, IMAGES)) == {"casts": 1, "largest": 1}
    assert found(program(tf, body, IMAGES, compute="float32")) == {}
    bytes_of = tf.TensorSpec(IMAGES, tf.uint8)
    assert found(program(tf, body, bytes_of)) == {"casts": 1, "largest": 1}


def test_a_larger_tensor_than_the_originals(tf: Any) -> None:
    made = program(tf, lambda x: tf.cast(tf.cast(x, tf.float32), tf.float16), [8, 8])
    assert made.largest() == {"": (256, 128)}
    assert found(made) == {"largest": 1}


@pytest.mark.parametrize(
    ("first", "most", "stays"), [(0, None, 0), (1, None, 0), (0, 5, 0), (1, 4, 1)]
)
def test_a_loop_that_stays_a_while(tf: Any, first: int, most: Any, stays: int) -> None:
    def body(x: Any) -> Any:
        def one(count: Any, value: Any) -> Any:
            return count + 1, tf.tanh(value)

        def inner(number: Any, value: Any) -> Any:
            start = (tf.constant(first), value)
            ended = tf.while_loop(lambda c, _: c < 5, one, start, maximum_iterations=most)
            return number + 1, ended[1]

        return tf.while_loop(lambda number, _: number < 3, inner, (tf.constant(0), x))[1]

    made = program(tf, body, [3])
    assert ipu_lint.time_loops(made) == 1
    assert found(made) == ({"loops": stays} if stays else {})


def test_a_loop_until_a_value_is_reached(tf: Any) -> None:
    def body(x: Any) -> Any:
        return tf.while_loop(lambda x: tf.reduce_sum(x) < 9, lambda x: (x + 1,), (x,))

    (loop,) = Module(program(tf, body, [3]).hlo()).loops()
    assert loop[1]


def test_random_numbers_that_the_sdk_does_not_draw(tf: Any) -> None:
    def body(x: Any) -> Any:
        whole = tf.random.stateless_uniform([3], [1, 2], None, None, tf.int32)
        return x + tf.cast(whole, tf.float16)

    assert found(program(tf, body, [3]))["random"] == 1
    drawn = program(tf, lambda x: x + tf.random.stateless_normal([3], [1, 2], dtype=x.dtype), [3])
    assert "random" not in found(drawn)


def test_a_shape_that_nobody_knows(tf: Any) -> None:
    assert found(program(tf, tf.nn.relu, [None, 3]))["shapes"] >= 1


def test_a_large_constant(tf: Any) -> None:
    values = np.zeros([1 << 18, 3], np.float16)
    made = program(tf, lambda x: x * tf.constant(values), [3])
    assert found(made) == {"constants": 1}


def test_what_the_host_does_meanwhile(tf: Any) -> None:
    def body(x: Any) -> Any:
        value = tf.numpy_function(lambda x: x, [x], tf.float16)
        value.set_shape(x.shape)
        return value

    assert found(program(tf, body, [3]))["host"] == 1


def test_what_stands_for_the_sdk_is_left_out(tf: Any) -> None:
    def body(x: Any) -> Any:
        with tf.name_scope(STAND_IN):
            return tf.cast(tf.math.bessel_i0e(tf.cast(x, tf.float32)), tf.float16)

    made = program(tf, body, [3])
    assert {o.node.type for o in operations(made.concrete.graph)} <= {"Placeholder", "Identity"}


@pytest.fixture
def few_timesteps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rnn]:
    monkeypatch.setenv("TF_POPLAR_FLAGS", SYNTHETIC)
    yield Rnn(system="ipu", mode="training", data="synthetic", hidden_size=4, batches_per_step=2)


def test_a_case_is_traced_as_it_is_run(tf: Any, few_timesteps: Rnn) -> None:
    with ipu_lint.traced("rnn", few_timesteps, bench_rnn.bench_rnn) as made:
        assert made.compute == "float16"
        assert ipu_lint.time_loops(made) == 2
        assert found(made) == {}
