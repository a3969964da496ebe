"""``IPUConfig``: a tree of options that refuses other names and values of other types."""

from __future__ import annotations

import enum
import os
from typing import Any, Dict, Iterator, Tuple

from tests.doubles.tensorflow_ipu.record import recorded, recorder


class DeviceConnectionType(enum.Enum):
    ALWAYS = enum.auto()
    ON_DEMAND = enum.auto()
    PRE_COMPILE = enum.auto()
    NEVER = enum.auto()


class MergeRemoteBuffersBehaviour(enum.Enum):
    NO_MERGING = enum.auto()
    MERGE = enum.auto()
    IF_BENEFICIAL = enum.auto()


class SchedulingAlgorithm(enum.Enum):
    CHOOSE_BEST = enum.auto()
    CLUSTERING = enum.auto()
    POST_ORDER = enum.auto()
    LOOK_AHEAD = enum.auto()
    SHORTEST_PATH = enum.auto()


class SelectionOrder(enum.Enum):
    AUTO = enum.auto()
    ZIGZAG = enum.auto()
    SNAKE = enum.auto()
    HOOF = enum.auto()


class StochasticRoundingBehaviour(enum.Enum):
    OFF = enum.auto()
    ON = enum.auto()
    REPLICA_IDENTICAL_ONLY = enum.auto()


# Path -> default, whose type is the only one accepted; NUMBERS also accept lists of int.
DEFAULTS: Dict[str, Any] = {
    "allow_recompute": False,
    "selection_order": SelectionOrder.AUTO,
    "serialization_output_folder": "",
    "compilation_poplar_options": {},
    "gcl_poplar_options": {},
    "auto_select_ipus": [],
    "select_ipus": [],
    "convolutions.poplar_options": {},
    "device_connection.type": DeviceConnectionType.ALWAYS,
    "device_connection.version": "",
    "device_connection.enable_remote_buffers": False,
    "slices.poplar_options": {},
    "experimental.always_rearrange_copies_on_the_host": False,
    "experimental.enable_remote_buffer_embedding": False,
    "experimental.enable_prng_stability": False,
    "experimental.multi_replica_distribution.process_index": 0,
    "experimental.multi_replica_distribution.process_count": 0,
    "floating_point_behaviour.inv": False,
    "floating_point_behaviour.div0": False,
    "floating_point_behaviour.oflo": False,
    "floating_point_behaviour.esr": StochasticRoundingBehaviour.OFF,
    "floating_point_behaviour.nanoo": False,
    "floating_point_behaviour.set_all": False,
    "io_tiles.num_io_tiles": 0,
    "io_tiles.place_ops_on_io_tiles": False,
    "io_tiles.available_memory_proportion": 0.9,
    "ipu_model.compile_ipu_code": True,
    "ipu_model.tiles_per_ipu": 0,
    "ipu_model.version": "ipu2",
    "matmuls.clear_pass_type": False,
    "matmuls.poplar_options": {},
    "norms.use_stable_statistics": False,
    "norms.experimental.distributed_batch_norm_replica_group_size": 1,
    "optimizations.math.fast": False,
    "optimizations.math.dot_strength": True,
    "optimizations.prefetch_data_streams": True,
    "optimizations.combine_embedding_lookups": False,
    "optimizations.combine_matmuls": False,
    "optimizations.enable_graph_outlining": True,
    "optimizations.merge_infeed_io_copies": True,
    "optimizations.maximum_cross_replica_sum_buffer_size": 0,
    "optimizations.maximum_reduce_scatter_buffer_size": 0,
    "optimizations.maximum_inter_ipu_copies_buffer_size": 0,
    "optimizations.maximum_send_recv_cluster_size": 0,
    "optimizations.maximum_reduce_many_buffer_size": 0,
    "optimizations.maximum_all_gather_buffer_size": 0,
    "optimizations.minimum_remote_tensor_size": 128,
    "optimizations.merge_remote_buffers": MergeRemoteBuffersBehaviour.IF_BENEFICIAL,
    "optimizations.enable_gather_simplifier": True,
    "optimizations.triangular_solve_expander_block_size": 0,
    "optimizations.cholesky_block_size": 0,
    "optimizations.enable_fast_math": False,
    "optimizations.enable_dynamic_slice_replacement": True,
    "pooling.poplar_options": {},
    "scheduling.algorithm": SchedulingAlgorithm.CHOOSE_BEST,
    "scheduling.maximum_scheduler_lookahead_depth": 5,
    "scheduling.maximum_scheduler_search_space_size": 64,
}
NUMBERS = ("auto_select_ipus", "select_ipus")
# The planners' options (graphcore/poplibs, ConvOptions.cpp and MatMul.cpp).
OF_BOTH = {
    "availableMemoryProportion",
    "enableFastReduce",
    "enableMultiStageReduce",
    "partialsType",
    "planConstraints",
    "remapOutputTensor",
    "use128BitConvUnitLoad",
}
PLANNED = {
    "convolutions": OF_BOTH | {"enableConvDithering", "gatherConvOutput"},
    "matmuls": OF_BOTH | {"gatherOutput"},
    # Of LSTMs and GRUs (Lstm.cpp and Gru.cpp).
    "recurrent": {"availableMemoryProportion", "numShards", "partialsType", "rnnCodeReuse"},
}


def check_planned(kind: str, given: Any) -> None:
    """Refuse options that poplibs' planner of this kind does not have."""
    import tensorflow as tf

    for name in given:
        if name not in PLANNED[kind]:
            raise tf.errors.InvalidArgumentError(None, None, f"Unrecognised option '{name}'")


COUNT = "experimental.multi_replica_distribution.process_count"


class _Category:
    """The options below one name."""

    _path: str

    def __init__(self, path: str) -> None:
        for name, default in DEFAULTS.items():
            inner = name[len(path) :] if name.startswith(path) else ""
            key, _, rest = inner.partition(".")
            if key:
                value = _Category(f"{path}{key}.") if rest else default
                vars(self)[key] = dict(value) if isinstance(value, dict) else value
        vars(self)["_path"] = path

    def __setattr__(self, name: str, value: Any) -> None:
        path = self._path + name
        if path not in DEFAULTS:
            raise ValueError(f"{path} is no option of IPUConfig that can be set")
        kinds = (int, list, tuple) if path in NUMBERS else (type(DEFAULTS[path]),)
        if type(value) not in kinds:
            raise TypeError(f"{path}: {value!r} is no {' or '.join(k.__name__ for k in kinds)}")
        vars(self)[name] = value

    def _changed(self) -> Iterator[Tuple[str, Any]]:
        for name, value in vars(self).items():
            if isinstance(value, _Category):
                yield from value._changed()
            elif name != "_path" and value != DEFAULTS[self._path + name]:
                yield self._path + name, value


class IPUConfig(_Category):
    """All options; configuring attaches to the IPUs, as with connection type ALWAYS."""

    @recorded
    def __init__(self) -> None:
        super().__init__("")

    @recorded
    def configure_ipu_system(self, device: str = "cpu") -> None:
        import tensorflow as tf

        flags = os.environ.get("TF_POPLAR_FLAGS", "")
        changed = dict(self._changed())
        _check_together(self, changed, "--use_ipu_model" in flags.split())
        for path, value in changed.items():
            if path.endswith("poplar_options"):
                assert all(isinstance(text, str) for item in value.items() for text in item), path
        for kind in ("convolutions", "matmuls"):
            check_planned(kind, changed.get(f"{kind}.poplar_options", {}))
        rounding = changed.get("floating_point_behaviour.esr")
        if rounding is StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY:
            # Without a message the SDK rounds to nearest.
            stable = changed.get("experimental.enable_prng_stability", False)
            assert stable, "REPLICA_IDENTICAL_ONLY acts with enable_prng_stability only"
        connection = changed.get("device_connection.type", DeviceConnectionType.ALWAYS)
        assert connection is not DeviceConnectionType.NEVER, "the stand-in runs programs"
        offline = connection is DeviceConnectionType.PRE_COMPILE
        if offline and "device_connection.version" not in changed:
            raise ValueError("device_connection.version has to be set for this type")
        if recorder.attached and recorder.configured != changed:
            tf.get_logger().warning("Resetting existing IPU configuration before applying new")
            reset_ipu_configuration()
        if recorder.attach_error and connection is DeviceConnectionType.ALWAYS:
            raise tf.errors.InternalError(None, None, recorder.attach_error)
        selected = changed.get("select_ipus")
        # An instance of poprun has its IPUs even if it may not attach to any.
        assert not (offline and selected is not None and COUNT not in changed), "ends the process"
        attached = changed.get("auto_select_ipus", 1)
        if selected is not None:
            attached = recorder.groups.get(selected, 1)
        if attached & (attached - 1):
            raise tf.errors.FailedPreconditionError(None, None, "Unsupported number of IPUs")
        recorder.configured, recorder.flags, recorder.attached = changed, flags, attached


def _check_together(config: Any, changed: Dict[str, Any], ipu_model: bool) -> None:
    """Refuse options that contradict each other or the IPU Model, as ``ipu/config.py`` does."""
    if "auto_select_ipus" in changed and "select_ipus" in changed:
        raise Exception("Only one of `auto_select_ipus` and `select_ipus` can be set.")
    if "select_ipus" in changed and ipu_model:
        raise Exception("the IPUModel takes `auto_select_ipus` only")
    processes = config.experimental.multi_replica_distribution
    if processes.process_count > 0 and ipu_model:
        raise Exception("Multi-replica distribution is not supported on the IPU model.")
    if processes.process_count and not 0 <= processes.process_index < processes.process_count:
        raise ValueError("process_index must be in the range [0, process_count)")
    if config.norms.experimental.distributed_batch_norm_replica_group_size < 1:
        raise ValueError("distributed_batch_norm_replica_group_size must be at least 1")


@recorded
def reset_ipu_configuration() -> None:
    """Wait for the IPUs and release them, which loses the values of their variables."""
    recorder.queued = 0
    recorder.failed = None
    for held in recorder.held:
        variable = held()
        if variable is not None and variable.dtype.is_floating:
            variable.assign(variable * float("nan"))
    recorder.held.clear()
    recorder.attached = 0
    recorder.shards = 1
