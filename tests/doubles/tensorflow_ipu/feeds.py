"""The queue that brings results from the device to the host."""

from __future__ import annotations

import enum
from typing import Any, List, Optional

from tests.doubles.tensorflow_ipu.record import recorded, recorder


class IPUOutfeedMode(enum.Enum):
    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue:
    """What a program puts in, the host takes out, all at once; only mode ALL is here."""

    @recorded
    def __init__(
        self,
        outfeed_mode: Optional[IPUOutfeedMode] = None,
        device_ordinal: int = 0,
        buffer_depth: int = 1,
    ) -> None:
        self._outfeed_mode = outfeed_mode or IPUOutfeedMode.ALL
        assert self._outfeed_mode is IPUOutfeedMode.ALL, "the stand-in has no other mode"
        self._specs: List[Any] = []
        self._held: List[Any] = []

    @property
    def enqueued(self) -> bool:
        return bool(self._specs)

    @property
    def deleter(self) -> None:
        recorder.calls.append(("IPUOutfeedQueue.deleter", {}))
        self._held = []

    @recorded
    def enqueue(self, tensors: Any) -> Any:
        import tensorflow as tf

        if self.enqueued:
            raise ValueError("An outfeed can only be enqueued once.")
        flat = [tf.convert_to_tensor(tensor) for tensor in tensors]
        self._specs = [(tensor.shape.as_list(), tensor.dtype) for tensor in flat]
        return self._put(flat)

    def _put(self, flat: Any) -> Any:
        """Enqueue once more: a pipeline that is unrolled here is a loop in the SDK."""
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
        """Return a list of tensors [enqueued, replicas, ...]; one replica adds no dimension."""
        import numpy as np
        import tensorflow as tf

        if not self.enqueued:
            raise ValueError("Trying to dequeue an outfeed which has not been enqueued.")
        held, self._held = self._held, []
        found = []
        for number, (shape, dtype) in enumerate(self._specs):
            values = np.zeros([len(held), *shape], dtype.as_numpy_dtype)
            for place, arrays in enumerate(held):
                values[place] = arrays[number]
            if recorder.replicas > 1:
                values = np.stack([values] * recorder.replicas, axis=1)
            found.append(tf.constant(values))
        return found
