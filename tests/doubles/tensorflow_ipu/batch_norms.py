"""A batch norm with a float16 scale, which only the SDK's TensorFlow has."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator
from unittest import mock

from tests.doubles.tensorflow_ipu.record import ONE_OPERATION

#: Part of the names of functions that replace such a batch norm.
HALF_BATCH_NORM = f"FusedBatchNormV3OfHalf{ONE_OPERATION}"


@contextlib.contextmanager
def batch_norms_of_half(tf: Any) -> Iterator[None]:
    """Have ``FusedBatchNormV3`` accept a float16 scale, as only the SDK's TensorFlow does."""
    stock = tf.raw_ops.FusedBatchNormV3

    def fused_batch_norm(**given: Any) -> Any:
        if given["scale"].dtype != tf.float16:
            return stock(**given)
        parts = ("scale", "offset", "mean", "variance")
        options = {name: value for name, value in given.items() if name not in ("x", *parts)}

        def norm(images: Any, *values: Any) -> Any:
            assert images.dtype == tf.float16
            assert all(value.dtype == tf.float16 for value in values)
            wide = {name: tf.cast(value, tf.float32) for name, value in zip(parts, values)}
            images, mean, variance, *_ = stock(x=images, **wide, **options)
            return images, tf.cast(mean, tf.float16), tf.cast(variance, tf.float16)

        norm.__name__ = HALF_BATCH_NORM
        values = [given[part] for part in parts]
        return tf.function(norm, autograph=False)(given["x"], *values)

    with mock.patch.object(tf.raw_ops, "FusedBatchNormV3", fused_batch_norm):
        yield
