"""``popdist.tensorflow``: the IPUs of an instance that poprun started."""

from __future__ import annotations

from typing import Any

from tests.doubles import popdist
from tests.doubles.tensorflow_ipu.record import recorded, recorder

DEVICE_ID = 7


@recorded
def set_ipu_config(config: Any, ipus_per_replica: int = 1, configure_device: bool = True) -> Any:
    """Choose the instance's group of IPUs; replicas of all instances exchange their gradients."""
    job = popdist.recorder
    assert "init" in job.names(), "popdist.init() comes first"
    assert ipus_per_replica == job.ipus_per_replica, "poprun was told another number"
    assert configure_device
    config.select_ipus = DEVICE_ID
    recorder.groups[DEVICE_ID] = job.replicas // job.instances * ipus_per_replica
    distribution = config.experimental.multi_replica_distribution
    distribution.process_index = job.index
    distribution.process_count = job.instances
    return config
