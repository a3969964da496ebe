"""``popdist.tensorflow`` and PopDist's strategy, in an instance that poprun started."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.doubles import popdist
from tests.doubles.tensorflow_ipu.program import IPUStrategyV1
from tests.doubles.tensorflow_ipu.record import recorded, recorder

DEVICE_ID = 7


@recorded
def set_ipu_config(config: Any, ipus_per_replica: int = 1, configure_device: bool = True) -> Any:
    """Choose the instance's group of IPUs; replicas of all instances exchange gradients."""
    job = popdist.recorder
    assert "init" in job.names(), "popdist.init() comes first"
    assert ipus_per_replica == job.ipus_per_replica, "poprun has another number"
    assert configure_device
    config.select_ipus = DEVICE_ID
    recorder.groups[DEVICE_ID] = job.replicas // job.instances * ipus_per_replica
    distribution = config.experimental.multi_replica_distribution
    distribution.process_index = job.index
    distribution.process_count = job.instances
    return config


class PopDistStrategy(IPUStrategyV1):
    """The strategy of programs with several instances; the other instances do not exist here."""

    _checks_types = False

    @recorded
    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        import tensorflow as tf

        popdist.init()
        super().__init__()
        # Its variables are mirrored over one replica; IPUStrategyV1's are ordinary.
        self._mirrors = tf.distribute.MirroredStrategy(["/cpu:0"])

    @contextlib.contextmanager
    def _scope(self) -> Any:
        with self._mirrors.scope(), super()._scope() as scope:
            yield scope

    @recorded
    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run a program without waiting: ipu/distributed/popdist_strategy.py only calls it."""
        from tensorflow.python.distribute.distribute_lib import ReplicaContext

        with ReplicaContext(self._mirrors, 0):
            return self._start(fn, args, kwargs or {})

    @recorded
    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Return this instance's value: in a mean the others are equal, in a sum they are zero."""
        import tensorflow as tf

        assert tf.executing_eagerly(), "hosts exchange between the calls of a program"
        assert self._depth, "the strategy's scope was left"
        assert isinstance(reduce_op, tf.distribute.ReduceOp)
        assert axis is None
        return value
