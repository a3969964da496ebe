"""The loss of a classifier, with smoothed and mixed labels."""

from __future__ import annotations

from typing import Any, Optional


def cross_entropy(
    tf: Any,
    logits: Any,
    labels: Any,
    shares: Optional[Any] = None,
    label_smoothing: float = 0.0,
) -> Any:
    """Return the mean softmax cross-entropy of logits [N, classes], a float32 scalar.

    ``labels``: integers [N], or for mixed images [N, K] with ``shares`` [N, K], whose rows sum to
    1. With ``label_smoothing`` s, a label's target is 1 - s, that of each other class s / (classes
    - 1).
    """
    logits = tf.cast(logits, tf.float32)
    if shares is None and not label_smoothing:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(losses)
    classes = logits.shape[-1]
    targets = tf.one_hot(
        labels,
        classes,
        on_value=1.0 - label_smoothing,
        off_value=label_smoothing / (classes - 1),
        dtype=tf.float32,
    )
    if shares is not None:
        targets = tf.reduce_sum(targets * tf.cast(shares, tf.float32)[..., tf.newaxis], axis=1)
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=logits))


def correct_predictions(tf: Any, logits: Any, labels: Any) -> Any:
    """Return how many rows of logits [N, classes] are largest at their label, an int32 scalar."""
    answers = tf.argmax(logits, axis=1, output_type=tf.int32)
    return tf.reduce_sum(tf.cast(answers == labels, tf.int32))
