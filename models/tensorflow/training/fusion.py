"""One XLA kernel each for a host's update of its large variables, compiled together."""

from __future__ import annotations

from typing import Any, Callable, Sequence

#: (index of a variable, the tensor that updates it, a value for all) -> None; assigns.
Apply = Callable[[int, Any, Any], None]
# XLA compiles a kernel for each variable, small or large. An EfficientNet-B4 with RMSprop has 418:
# all fused take 127 s to compile in TensorFlow 2.6.5 (11 s in 2.21), those from here on 8 s, of
# which 5 s are TensorFlow's own, and they hold 9 of 10 weights.
FUSED_FROM = 1 << 16  # elements


def for_each(tf: Any, apply: Apply, tensors: Sequence[Any], shared: Any, fuse: bool) -> None:
    """Call ``apply(index, tensor, shared)`` for each tensor; with ``fuse`` XLA runs large ones.

    Call it inside a tf.function: called eagerly, it would compile each time.
    """
    large = [i for i, t in enumerate(tensors) if fuse and t.shape.num_elements() >= FUSED_FROM]

    def fused(shared: Any, *chosen: Any) -> None:
        for index, tensor in zip(large, chosen):
            apply(index, tensor, shared)

    if large:
        compiled = tf.function(fused, jit_compile=True, autograph=False)
        compiled(shared, *(tensors[index] for index in large))
    for index in sorted(set(range(len(tensors))) - set(large)):
        apply(index, tensors[index], shared)
