"""Recurrent layers as the original programs run them on an IPU: TensorFlow's dynamic_rnn.

Each timestep multiplies its inputs and the state in one product, [x, h] W + b, and computes in one
type; training sums the weights' gradient timestep by timestep. A host has a faster form
(recurrent.py). Two things differ from the originals: loops have a known number of iterations, also
backwards in time, so that Poplar turns them into repeats; and the gradient keeps the products and
recomputes the gates, while TensorFlow's keeps the gates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Sequence, Tuple

from ipubench.models.tensorflow.recurrent import Form, State, scan


class Cell(ABC):
    """One timestep. States are (hidden [B, H], *memory); ``weights`` are tensors."""

    @abstractmethod
    def forward(self, x: Any, state: State, weights: State) -> Tuple[State, State]:
        """Return the next state, and what the gradient needs from this timestep."""

    @abstractmethod
    def backward(
        self, x: Any, state: State, kept: State, weights: State, slopes: State
    ) -> Tuple[Any, State, State]:
        """Return the gradients of the inputs, of the state and of the weights.

        ``slopes`` are those of the next state.
        """


class OneProduct(Cell):
    """A cell with one product, of weights (kernel [I + H, G], bias [G]).

    ``gates`` maps (sums [B, G], *memory) to the next state.
    """

    def __init__(self, tf: Any, gates: Callable[..., State]) -> None:
        self._tf = tf
        self._gates = gates

    def forward(self, x: Any, state: State, weights: State) -> Tuple[State, State]:
        """Return the next state, and the sums."""
        sums = affine(self._tf, [x, state[0]], *weights)
        return tuple(self._gates(sums, *state[1:])), (sums,)

    def backward(
        self, x: Any, state: State, kept: State, weights: State, slopes: State
    ) -> Tuple[Any, State, State]:
        """Return the gradients of the inputs, of the state and of the weights."""
        given = [*kept, *state[1:]]
        with self._tf.GradientTape() as tape:
            tape.watch(given)
            after = self._gates(*given)
        of_sums, *of_memory = tape.gradient(after, given, output_gradients=list(slopes))
        (of_x, of_hidden), *more = slopes_of_affine(self._tf, [x, state[0]], weights[0], of_sums)
        return of_x, (of_hidden, *of_memory), tuple(more)


def affine(tf: Any, parts: Sequence[Any], kernel: Any, bias: Any) -> Any:
    """Return [parts] kernel + bias, for parts [B, N] side by side."""
    return tf.nn.bias_add(tf.matmul(tf.concat(parts, 1), kernel), bias)


def slopes_of_affine(
    tf: Any, parts: Sequence[Any], kernel: Any, slopes: Any
) -> Tuple[Any, Any, Any]:
    """Return the gradients of the parts, of the kernel and of the bias."""
    sizes = [part.shape[1] for part in parts]
    of_parts = tf.split(tf.matmul(slopes, kernel, transpose_b=True), sizes, 1)
    of_kernel = tf.matmul(tf.concat(parts, 1), slopes, transpose_a=True)
    return of_parts, of_kernel, tf.reduce_sum(slopes, 0)


def dynamic_rnn(
    tf: Any,
    cell: Cell,
    inputs: Any,
    state: State,
    variables: Sequence[Any],
    *,
    training: bool,
    form: Form,
    of_inputs: bool = False,
) -> Any:
    """Return the hidden states [T, B, H] of a layer on inputs [T, B, I], from an initial state.

    Without ``training`` there is no gradient; the inputs have one only with ``of_inputs``.
    """
    count = len(state)

    def forward(weights: State) -> Callable[[State, State], Tuple[State, State]]:
        def step(state: State, here: State) -> Tuple[State, State]:
            after, kept = cell.forward(here[0], state, weights)
            return after, ((after[0], *state, *kept) if training else after[:1])

        return step

    variables = [tf.convert_to_tensor(variable) for variable in variables]
    if not training:
        return scan(tf, forward(tuple(variables)), state, [inputs], form)[1][0]

    @tf.custom_gradient
    def run(inputs: Any, *weights: Any) -> Tuple[Any, Callable[[Any], Tuple[Any, ...]]]:
        _, (hiddens, *saved) = scan(tf, forward(weights), state, [inputs], form)

        def backward(carried: State, here: State) -> Tuple[State, State]:
            (later, *memory), sums = carried[:count], carried[count:]
            slope, x, *rest = here
            before, kept = tuple(rest[:count]), tuple(rest[count:])
            slopes = (later + slope, *memory)
            of_x, of_state, of_weights = cell.backward(x, before, kept, weights, slopes)
            grown = (total + more for total, more in zip(sums, of_weights))
            return (*of_state, *grown), ((of_x,) if of_inputs else ())

        def gradient(slopes: Any) -> Tuple[Any, ...]:
            start = tuple(tf.zeros_like(part) for part in (*state, *weights))
            sequences = [slopes, inputs, *saved]
            ended, outputs = scan(tf, backward, start, sequences, form, reverse=True)
            return (outputs[0] if of_inputs else None, *ended[count:])

        return hiddens, gradient

    return run(inputs, *variables)
