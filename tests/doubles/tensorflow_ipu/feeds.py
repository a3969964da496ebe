"""The queues between host and device: batches in, results out.

Programs are traced and run eagerly on one thread, the only use of queues here.
"""

from __future__ import annotations

import enum
import threading
from typing import Any, List, Optional

from tests.doubles.tensorflow_ipu.record import STAND_IN, recorded, recorder


class IPUInfeedQueue:
    """A data set's batches for the loops of one program."""

    @recorded
    def __init__(
        self,
        dataset: Any,
        device_ordinal: Optional[int] = None,
        prefetch_depth: Optional[int] = None,
        optimise_latency: bool = False,
        **kwargs: Any,
    ) -> None:
        import tensorflow as tf

        for spec in tf.nest.flatten(dataset.element_spec):
            if not spec.shape.is_fully_defined():
                raise ValueError(f"Output shape {spec.shape} is not fully defined.")
        depth = prefetch_depth or 3
        if not 0 < depth < 256:
            raise ValueError(f"prefetch_depth must be from 1 to 255, but it is {depth}")
        assert device_ordinal is None
        assert not kwargs, f"deprecated: {sorted(kwargs)}"
        self._dataset = dataset
        self._iterator: Any = None
        # Batches that programs took, over all replicas.
        self._taken = tf.Variable(0)
        recorder.queues.append(self)

    @property
    def number_of_tuple_elements(self) -> int:
        spec = self._dataset.element_spec
        return len(spec) if isinstance(spec, (tuple, dict)) else 1

    @property
    def initializer(self) -> None:
        """Start from the first batch at once: in eager mode each access creates a new iterator."""
        import tensorflow as tf

        assert tf.executing_eagerly(), "within a graph it is an operation, to be had once"
        recorder.calls.append(("IPUInfeedQueue.initializer", {}))
        self._iterator = iter(self._dataset)

    @property
    def deleter(self) -> None:
        recorder.calls.append(("IPUInfeedQueue.deleter", {}))
        assert self._iterator is not None, "a queue that was never started"
        self._iterator = None

    def _dequeue(self) -> Any:
        """Return the first replica's batch; the other replicas take theirs too."""
        import tensorflow as tf

        if recorder.synthetic:  # the iterator is neither needed nor read
            with tf.name_scope(STAND_IN):
                return tf.nest.map_structure(
                    lambda spec: tf.cast(tf.random.normal(spec.shape), spec.dtype),
                    self._dataset.element_spec,
                )
        assert self._iterator is not None, "the queue was not started, which ends the process"
        batches = [next(self._iterator) for _ in range(recorder.replicas)]
        self._taken.assign_add(len(batches))
        return batches[0]


class IPUOutfeedMode(enum.Enum):
    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue:
    """Results of a program, all of which the host takes."""

    @recorded
    def __init__(
        self,
        outfeed_mode: Optional[IPUOutfeedMode] = None,
        device_ordinal: Optional[int] = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
    ) -> None:
        assert outfeed_mode in (None, IPUOutfeedMode.ALL), "the stand-in has no other mode"
        assert device_ordinal is None
        self._graphs: List[Any] = []
        self._specs: List[Any] = []
        self._held: List[Any] = []
        self._thread: Optional[int] = None

    @property
    def enqueued(self) -> bool:
        return bool(self._graphs)

    @property
    def deleter(self) -> None:
        recorder.calls.append(("IPUOutfeedQueue.deleter", {}))
        self._held = []

    @recorded
    def enqueue(self, tensors: Any) -> Any:
        """Return the operation, which runs once in each run of the traced program."""
        import tensorflow as tf

        graph = tf.compat.v1.get_default_graph()
        if any(graph is other for other in self._graphs):
            raise ValueError("An outfeed can only be enqueued once.")
        self._graphs.append(graph)
        self._thread = threading.get_ident()
        assert isinstance(tensors, list), "the stand-in has no other structures"
        flat = [tf.convert_to_tensor(tensor) for tensor in tensors]
        self._specs = [(tensor.shape.as_list(), tensor.dtype) for tensor in flat]
        return self._put(flat)

    def _put(self, flat: Any) -> Any:
        """Enqueue again: a pipeline that is unrolled here is a loop in the SDK."""
        import tensorflow as tf

        if recorder.synthetic:
            return tf.no_op()
        return tf.numpy_function(self._take, flat, tf.int32).op

    def _take(self, *arrays: Any) -> Any:
        import numpy as np

        self._held.append(arrays)
        return np.int32(0)

    @recorded
    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """Return a list of tensors [enqueued, replicas, ...] and empty the queue.

        One replica adds no dimension. In eager mode it waits for the IPUs on the thread that traced
        the program, and on other threads only on request (ipu/ipu_outfeed_queue.py).
        """
        import numpy as np
        import tensorflow as tf

        if recorder.only_arguments:
            return []
        if not self.enqueued:
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        if wait_for_completion or threading.get_ident() == self._thread:
            recorder.wait()
        held, self._held = self._held, []
        if recorder.connection == "PRE_COMPILE":
            # Nothing ran; there is one element, however often the program enqueues.
            held = [[np.zeros(shape, dtype.as_numpy_dtype) for shape, dtype in self._specs]]
        found = []
        for number, (shape, dtype) in enumerate(self._specs):
            values = np.zeros([len(held), *shape], dtype.as_numpy_dtype)
            for place, arrays in enumerate(held):
                values[place] = arrays[number]
            if recorder.replicas > 1:
                values = np.stack([values] * recorder.replicas, axis=1)
            found.append(tf.constant(values))
        return found
