"""Recurrent layers over time: the loop, and a gradient with little work per timestep.

A cell is the part of a timestep after its matrix product. As single operations it takes a CPU
longer than the product in 16 bits, so on a host XLA compiles it into one kernel (a batch of 512
sequences, two layers of 256 units: 1.8 times as fast).
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

State = Tuple[Any, ...]
#: (state, this timestep's part of each sequence) -> (next state, this timestep's outputs).
Step = Callable[[State, State], Tuple[State, State]]
#: (inputs' part, state's product, *memory) -> (hidden state, *memory); memory is float32.
Cell = Callable[..., State]

# XLA would compile longer sequences for minutes.
LONGEST_UNROLLED = 32


class Form(NamedTuple):
    """How a layer becomes operations of its device."""

    #: XLA compiles the cell into one kernel.
    fuse: bool = True
    #: A longer sequence is a loop in the graph.
    longest_unrolled: int = LONGEST_UNROLLED
    #: A loop stores 16 bits as 32: XLA converts a whole 16-bit array to write one timestep.
    wide: bool = False
    #: As in the original programs, see dynamic_rnn.py.
    dynamic: bool = False


def form_for(system: str, xla: bool, training: bool) -> Form:
    """Return the form for an IPU, or for a host with or without a loop compiled by XLA.

    If unrolled, XLA makes one kernel of each timestep's product and of the computation of its
    weights, which training changes: they are converted or sliced once per timestep, in kernels that
    take less time than waking their threads. The loop takes 0.4 to 1.0 of the time (5 timesteps of
    128 units on a CPU with AVX512_BF16). For inference, with constant weights, it would take 1.2.
    """
    if system != "host":
        # The whole program is compiled there, and must fit into the memory of the tiles.
        return Form(fuse=False, longest_unrolled=0, dynamic=True)
    return Form(wide=xla, longest_unrolled=0 if xla and training else LONGEST_UNROLLED)


def inputs_part(tf: Any, inputs: Any, kernel: Any, bias: Any, training: bool, form: Form) -> Any:
    """Return inputs [T, B, I] times kernel [I, G] plus bias [G]: one product for all timesteps."""
    timesteps, batch_size, features = inputs.shape
    shape = [timesteps, batch_size, kernel.shape[1]]
    sums = product(tf, tf.reshape(inputs, [-1, features]), kernel, form)
    if training:
        # Not next to the product: TensorFlow would fuse the two into an operation that is slow on a
        # CPU unless the weights are constant.
        return tf.nn.bias_add(tf.reshape(sums, shape), bias)
    return tf.reshape(tf.nn.bias_add(sums, bias), shape)


def parts_in_loop(inputs: Any, training: bool, form: Form) -> bool:
    """Return whether a layer should multiply the inputs timestep by timestep.

    A loop compiled by XLA has to write and read the products of all timesteps, so a single product
    is faster only if the kernel is long and few sequences use it (measured in float32 on a CPU with
    AVX2, 256 units, 200 timesteps: with 16 features, timestep by timestep was 1.25 to 1.6 times as
    fast, for 1 to 128 sequences; with 256 features 0.7 times for 4 sequences, 1.2 for 64, 1.4 for
    128).
    """
    timesteps, batch_size, features = inputs.shape
    looped = form.wide and not training and timesteps > form.longest_unrolled
    return bool(looped and inputs.dtype.size == 4 and features <= max(32, 4 * batch_size))


def layer(
    tf: Any,
    cell: Cell,
    inputs: Any,
    variables: Tuple[Any, Any, Any],
    memory: State = (),
    *,
    training: bool,
    form: Form,
) -> Any:
    """Return the hidden states [T, B, H] of a layer on inputs [T, B, I], like ``recurrence``.

    ``variables``: kernel [I, G] and bias [G] for the inputs, and [H, G] for the hidden state.
    """
    kernel, bias, weights = map(tf.convert_to_tensor, variables)
    if not parts_in_loop(inputs, training, form):
        # One product for all timesteps; only the state's product must wait.
        parts = inputs_part(tf, inputs, kernel, bias, training, form)
        return recurrence(tf, cell, parts, weights, memory, training=training, form=form)

    def part_of(here: Any) -> Any:
        return tf.nn.bias_add(product(tf, here, kernel, form), bias)

    return recurrence(
        tf, cell, inputs, weights, memory, training=training, form=form, part_of=part_of
    )


def recurrence(
    tf: Any,
    cell: Cell,
    parts: Any,
    weights: Any,
    memory: State = (),
    *,
    training: bool,
    form: Form,
    part_of: Optional[Callable[[Any], Any]] = None,
) -> Any:
    """Return the hidden states [T, B, H] of a layer with one product per timestep.

    ``parts`` [T, B, G] are the inputs' contributions; without ``training``, ``part_of`` may compute
    a timestep's contribution from them. ``weights`` [H, G] multiply the hidden state, which starts
    at zero. ``memory`` is the initial value of the cell's other state. Without ``training`` there
    is no gradient.
    """
    compiled = one_kernel(tf, cell, form)
    hidden = tf.zeros([parts.shape[1], weights.shape[0]], weights.dtype)
    factor = factor_of(tf, weights, form)

    def forward(state: State, here: State) -> Tuple[State, State]:
        hidden, *memory = state
        summed = product(tf, hidden, factor, form)
        part = here[0] if part_of is None else part_of(here[0])
        state = tuple(compiled(part, summed, *memory))
        return state, ((state[0], summed, *memory) if training else state[:1])

    if not training:
        return scan(tf, forward, (hidden, *memory), [parts], form)[1][0]

    def slopes_of_cell(part: Any, product: Any, *rest: Any) -> State:
        """Return the gradients for the product, which are also the part's, and for the memory."""
        before, slopes = rest[: len(memory)], rest[len(memory) :]
        with tf.GradientTape() as tape:
            tape.watch([product, *before])
            after = cell(part, product, *before)
        return tuple(tape.gradient(after, [product, *before], output_gradients=list(slopes)))

    slopes_compiled = one_kernel(tf, slopes_of_cell, form)

    @tf.custom_gradient
    def run(parts: Any, weights: Any) -> Tuple[Any, Callable[[Any], Tuple[Any, Any]]]:
        _, (hiddens, *saved) = scan(tf, forward, (hidden, *memory), [parts], form)

        def backward(state: State, here: State) -> Tuple[State, State]:
            later, *of_memory = state
            slope, *inputs = here
            slope, *of_memory = slopes_compiled(*inputs, slope + later, *of_memory)
            return (product(tf, slope, factor, form, transpose_b=True), *of_memory), (slope,)

        def gradient(slopes: Any) -> Tuple[Any, Any]:
            last = (tf.zeros_like(hidden), *(tf.zeros_like(value) for value in memory))
            sequences = [slopes, parts, *saved]
            _, (slope,) = scan(tf, backward, last, sequences, form, reverse=True)
            # The state before the first timestep is zero, so it adds nothing.
            return slope, over_time(tf, hiddens[:-1], slope[1:], form)

        return hiddens, gradient

    return run(parts, weights)


def product(tf: Any, left: Any, right: Any, form: Form, **transpose: bool) -> Any:
    """Return a matrix product in its factors' dtype, summed in float32."""
    if not form.wide:
        return tf.matmul(left, right, **transpose)
    wide = tf.matmul(tf.cast(left, tf.float32), tf.cast(right, tf.float32), **transpose)
    return tf.cast(wide, left.dtype)


def factor_of(tf: Any, weights: Any, form: Form) -> Any:
    """Return weights in the type of all timesteps' products, converted once."""
    return tf.cast(weights, tf.float32) if form.wide else weights


def over_time(tf: Any, factors: Any, slopes: Any, form: Form) -> Any:
    """Return the gradient [H, G] of weights that multiply a factor in each timestep.

    ``factors`` [T, B, H], ``slopes`` [T, B, G]: one product over all timesteps, not a sum of T.
    """
    left = tf.reshape(factors, [-1, factors.shape[2]])
    right = tf.reshape(slopes, [-1, slopes.shape[2]])
    return product(tf, left, right, form, transpose_a=True)


def one_kernel(tf: Any, function: Callable[..., Any], form: Form) -> Callable[..., Any]:
    """Return a function of tensors, compiled by XLA into one kernel if the form fuses."""
    if not form.fuse:
        return function
    compiled: Callable[..., Any] = tf.function(function, jit_compile=True, autograph=False)
    return compiled


def scan(
    tf: Any,
    step: Step,
    state: State,
    sequences: Sequence[Any],
    form: Form,
    reverse: bool = False,
) -> Tuple[State, List[Any]]:
    """Run ``step`` over tensors [T, ...] in sequence; return the last state, and outputs [T, ...].

    ``reverse`` starts at the last timestep; outputs have the positions of their inputs.
    """
    run = _unrolled if sequences[0].shape[0] <= form.longest_unrolled else _looped
    return run(tf, step, state, sequences, form, reverse)


def _unrolled(
    tf: Any, step: Step, state: State, sequences: Sequence[Any], form: Form, reverse: bool
) -> Tuple[State, List[Any]]:
    columns = list(zip(*(tf.unstack(sequence) for sequence in sequences)))
    rows = []
    for column in columns[::-1] if reverse else columns:
        state, outputs = step(state, column)
        rows.append(outputs)
    return state, [tf.stack(row) for row in zip(*(rows[::-1] if reverse else rows))]


def _looped(
    tf: Any, step: Step, state: State, sequences: Sequence[Any], form: Form, reverse: bool
) -> Tuple[State, List[Any]]:
    timesteps = sequences[0].shape[0]

    def at(count: Any) -> Any:
        return timesteps - 1 - count if reverse else count

    def here(count: Any) -> State:
        return tuple(part_at(tf, sequence, at(count)) for sequence in sequences)

    def array_for(output: Any) -> Any:
        dtype = tf.float32 if form.wide and output.dtype.size < 4 else output.dtype
        return tf.TensorArray(dtype, timesteps, element_shape=output.shape)

    if form.wide or form.dynamic:
        # For a timestep before the loop XLA would convert the weights again, and an IPU would store
        # its program twice.
        specs = tuple(tf.TensorSpec(sequence.shape[1:], sequence.dtype) for sequence in sequences)
        traced = tf.function(step, autograph=False).get_concrete_function(state, specs)
        first, looks = 0, traced.structured_outputs[1]
        arrays = tuple(map(array_for, looks))
    else:
        # A first timestep before the loop shows the shapes of the outputs, and its product with a
        # zero state is optimised away.
        state, looks = step(state, here(0))
        first, arrays = 1, tuple(array_for(output).write(at(0), output) for output in looks)

    def body(count: Any, state: State, arrays: State) -> Tuple[Any, State, State]:
        state, outputs = step(state, here(count))
        written = tuple(
            array.write(at(count), tf.cast(output, array.dtype))
            for array, output in zip(arrays, outputs)
        )
        return count + 1, state, written

    # No maximum_iterations, which would be a second counter: Poplar turns a loop with one condition
    # into a repeat; otherwise it evaluates both on the device at each timestep.
    _, state, arrays = tf.while_loop(
        lambda count, *_: count < timesteps,
        body,
        (tf.constant(first), state, arrays),
        parallel_iterations=1,
    )
    return state, [tf.cast(array.stack(), output.dtype) for array, output in zip(arrays, looks)]


def part_at(tf: Any, parts: Any, number: Any) -> Any:
    """Return one slice [...] of a tensor [N, ...] without a copy, unlike tf.gather.

    Slices by brackets have no static shape under the XLA of TensorFlow 2.6.
    """
    shape = parts.shape[1:]
    start = tf.stack([number] + [0] * len(shape))
    return tf.reshape(tf.slice(parts, start, [1, *shape]), shape)


def gate_weights(
    tf: Any, dtype: Any, features: int, size: int, gates: int, dynamic: bool = False
) -> List[Any]:
    """Return variables [I, GH] for inputs and [H, GH] for the state, each Glorot uniform.

    With ``dynamic``, one variable [I + H, GH] of both, as in the original programs.
    """
    glorot = tf.keras.initializers.GlorotUniform
    # Every TensorFlow has initialisers in float32, but not all in 16 bits.
    draws = [glorot()([rows, gates * size]) for rows in (features, size)]
    return [tf.Variable(tf.cast(d, dtype)) for d in ([tf.concat(draws, 0)] if dynamic else draws)]


def sequence_loss(tf: Any, output: Any, labels: Any, form: Form) -> Any:
    """Return the mean softmax cross-entropy of hidden states [T, B, H] against labels [T, B, H].

    In float32, or with ``dynamic`` in the states' type, as in the original programs.
    """
    dtype = output.dtype if form.dynamic else tf.float32
    logits, labels = (tf.cast(part, dtype) for part in (output, labels))
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))
