"""Read the traced programs of TensorFlow's IPU cases for what an IPU cannot do, or does slowly.

``python -m scripts.ipu_lint [NAME ...]`` traces each case (or those whose names contain a NAME)
with the stand-in of tests/doubles for the SDK, on TensorFlow 2.6 as the SDK's, prints a table and
ends with 1 where something was found. Nothing is compiled for an IPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple

from ipubench import bench_inference, bench_kernels, bench_training
from ipubench.fixtures.case.cases import SWEEP
from ipubench.fixtures.devices.ipu import IpuDevice
from scripts.hlo_loops import loops
from scripts.markdown_table import markdown_table
from scripts.steps import bench_functions, families, step_of
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu.batch_norms import HALF_BATCH_NORM
from tests.doubles.tensorflow_ipu.record import STAND_IN, recorder

#: The operations of our programs. XLA registers each of them for every device (tensorflow,
#: compiler/tf2xla/kernels), and the SDK takes none away: a new one is looked up there and in
#: compiler/plugin/poplar/driver/xla_ipu_common.cc.
OPERATIONS = frozenset([])
#: compiler/plugin/poplar/driver/xla_ipu_common.cc.
TYPES = frozenset(("int32", "int64", "float32", "float16", "bool", "resource", "variant"))
OF_BYTES = frozenset(("Cast", "Identity", "Reshape", "ExpandDims", "BroadcastTo", "Placeholder"))
#: compiler/plugin/poplar/kernels/poprand; TensorFlow's own for every device is GetAlg, a constant.
KEYS = "StatelessRandomGetKeyCounter"
RANDOM = {KEYS, "StatelessRandomGetAlg", "StatelessMultinomial"} | {
    f"Stateless{kind}{version}"
    for kind in ("RandomUniform", "RandomUniformInt", "RandomNormal", "TruncatedNormal")
    for version in ("", "V2")
}
#: XLA computes these when it compiles: they hold shapes.
OF_SHAPES = ("BroadcastGradientArgs", "Shape", "ShapeN")
WHILES = ("While", "StatelessWhile")
#: What runs on the host, from within a program.
ON_HOST = frozenset(("PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2", "Assert"))
LARGEST_CONSTANT = 1 << 20
#: The SDK's TensorFlow computes these in their inputs' type, stock TensorFlow in float32.
NOT_WIDENED = ("softmax_cross_entropy_with_logits", "moments")


@dataclass(frozen=True)
class Operation:
    """One operation, the functions that it is in, and the time loops around it."""

    node: Any
    path: Tuple[str, ...]
    time_loops: int

    @property
    def stage(self) -> str:
        """The stage of a pipeline that it is in; "" elsewhere."""
        found = [name for name in self.path if "stage" in name]
        return found[0].split("stage")[1].split("_")[0] if found else ""

    @property
    def is_half_norm(self) -> bool:
        """Whether it is the stand-in's call in place of a batch norm of half types."""
        return any(HALF_BATCH_NORM in name for name in called_by(self.node))

    def __str__(self) -> str:
        return f"{self.node.type} {self.node.name} in {'/'.join(self.path) or 'the program'}"


@dataclass
class Program:
    """What one case gives an IPU."""

    name: str
    concrete: Any
    compute: str
    #: Whether batch norms are float32 in the original, too.
    wide_norms: bool
    hlo: Callable[[], str]

    def __post_init__(self) -> None:
        self.operations = list(operations(self.concrete.graph))
        given = [variable.shape.as_list() for variable in self.concrete.graph.variables]
        self.weights = {tuple(shape) for shape in given}

    @property
    def tensors(self) -> Iterator[Tuple[Operation, Any]]:
        """Every tensor that holds numbers, with the operation that makes it."""
        for operation in self.operations:
            for tensor in operation.node.outputs:
                if tensor.dtype.name not in ("resource", "variant"):
                    yield operation, tensor

    def largest(self) -> Dict[str, Tuple[int, int]]:
        """Return stage -> bytes of its largest tensor, and of the original's.

        The original holds what is floating in the type that it computes in.
        """
        wide = self.wide_norms or self.compute == "float32"
        found: Dict[str, Tuple[int, int]] = {}
        for operation, tensor in self.tensors:
            if any(name in operation.node.name for name in NOT_WIDENED):
                continue
            count = tensor.shape.num_elements() or 0
            size = (4 if wide else 2) if tensor.dtype.is_floating else tensor.dtype.size
            ours, theirs = found.get(operation.stage, (0, 0))
            sizes = (max(ours, count * tensor.dtype.size), max(theirs, count * size))
            found[operation.stage] = sizes
        return found


def operations(
    graph: Any, path: Tuple[str, ...] = (), loops: int = 0, known: Any = None
) -> Iterator[Operation]:
    """Yield the operations of a graph and of the functions that it calls, once each.

    Those that stand for the SDK's are left out; a half batch norm is the call of its function.
    """
    known = {"seen": set()} if known is None else known
    known.update({as_text(name): f for name, f in graph._functions.items()})
    for node in graph.get_operations():
        if STAND_IN in node.name.split("/"):
            continue
        yield Operation(node, path, loops)
        for name in called_by(node):
            if HALF_BATCH_NORM in name or name in known["seen"] or name not in known:
                continue
            known["seen"].add(name)
            inner = loops + (node.type in WHILES)
            yield from operations(known[name].graph, (*path, name), inner, known)


def as_text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def called_by(node: Any) -> List[str]:
    """Return the functions that an operation calls."""
    attributes = node.node_def.attr.values()
    found = [a.func.name for a in attributes if a.HasField("func")]
    return found + [f.name for a in attributes if a.HasField("list") for f in a.list.func]


# --- the checks: what each finds in a program ------------------------------------------------


def unknown_operations(program: Program) -> List[str]:
    """Find operations and types that the IPU's XLA device does not register."""
    found = [f"unknown: {o}" for o in program.operations if o.node.type not in OPERATIONS]
    for operation, tensor in program.tensors:
        name = tensor.dtype.name
        more = {"uint8"} if operation.node.type in OF_BYTES else set()
        more |= {"uint64"} if operation.node.type == KEYS else set()
        if name not in TYPES | more:
            found.append(f"{name}: {operation}")
    return found


def batch_norms(program: Program) -> Counter[str]:
    """Return how many batch norms, forward and back, have which types: half/float."""
    found: Counter[str] = Counter()
    for operation in program.operations:
        node = operation.node
        if node.type.startswith("FusedBatchNorm"):
            found["/".join(node.get_attr(name).name for name in ("T", "U"))] += 1
        elif operation.is_half_norm:
            found["float16/float16"] += 1
    return found


def cast_norms(program: Program) -> List[str]:
    """Find batch norms that cast their images, unless the original's do."""
    return [
        f"{count} batch norms are {types}"
        for types, count in batch_norms(program).items()
        if len(set(types.split("/"))) > 1 and not program.wide_norms
    ]


def widened(program: Program) -> List[str]:
    """Find activations that are cast to float32 where the case computes in float16."""
    if program.compute != "float16":
        return []
    found = []
    for operation in program.operations:
        node = operation.node
        if node.type != "Cast" or any(name in node.name for name in NOT_WIDENED):
            continue
        (source,), (target,) = node.inputs, node.outputs
        shape = tuple(target.shape.as_list()) if target.shape.rank is not None else ()
        is_activation = len(shape) >= (2 if operation.time_loops > 1 else 3)
        allowed = shape in program.weights
        allowed |= program.wide_norms and source.dtype.name == "float16"
        if target.dtype.name == "float32" and is_activation and not allowed:
            found.append(f"{source.dtype.name} to float32 {list(shape)}: {operation}")
    return found


def larger_stages(program: Program) -> List[str]:
    """Find stages whose largest tensor is larger than the original's."""
    return [
        f"stage {stage or 0}: {ours} bytes, {theirs} in the original"
        for stage, (ours, theirs) in program.largest().items()
        if ours > theirs
    ]


def lasting_whiles(program: Program) -> List[str]:
    """Find loops that do not become repeats."""
    if not time_loops(program):
        return []
    return [f"{name}: {why}" for name, why in loops(program.hlo()) if why]


def time_loops(program: Program) -> int:
    """Return how many loops of its own a program has, besides the SDK's."""
    return sum(o.node.type in WHILES and bool(o.path) for o in program.operations)


def unregistered_random(program: Program) -> List[str]:
    """Find random operations that the SDK does not have."""
    drawn = [o for o in program.operations if "Random" in o.node.type or "Rng" in o.node.type]
    return [str(o) for o in drawn if o.node.type not in RANDOM]


def unknown_shapes(program: Program) -> List[str]:
    """Find tensors whose shape is not known when the program is compiled."""
    return [
        f"{tensor.shape}: {operation}"
        for operation, tensor in program.tensors
        if not tensor.shape.is_fully_defined()
        and operation.node.type not in OF_SHAPES
        and not operation.is_half_norm
        and "redundant_placeholder" not in operation.node.name  # of a condition that reads it not
    ]


def large_constants(program: Program) -> List[str]:
    """Find constants above 1 MiB."""
    return [
        f"{tensor.shape.num_elements() * tensor.dtype.size} bytes: {operation}"
        for operation, tensor in program.tensors
        if operation.node.type == "Const"
        and (tensor.shape.num_elements() or 0) * tensor.dtype.size > LARGEST_CONSTANT
    ]


def host_work(program: Program) -> List[str]:
    """Find what the host computes while the program runs."""
    return [str(o) for o in program.operations if o.node.type in ON_HOST]


CHECKS: Dict[str, Callable[[Program], List[str]]] = {
    "operations": unknown_operations,
    "norms": cast_norms,
    "casts": widened,
    "largest": larger_stages,
    "loops": lasting_whiles,
    "random": unregistered_random,
    "shapes": unknown_shapes,
    "constants": large_constants,
    "host": host_work,
}


# --- the programs ----------------------------------------------------------------------------


class Traced(Exception):
    """A program has been traced; nothing else of its case is wanted."""


@contextlib.contextmanager
def traced(name: str, config: Any, function: Any) -> Iterator[Program]:
    """Yield the program that a case gives an IPU."""
    from ipubench.fixtures.runtimes.tensorflow.on_ipu import TensorFlowIpu

    def caught(strategy: Any, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Traced(fn.__self__, args, fn(*args))

    sys.modules.update(double.modules())
    recorder.one_micro_batch = True
    strategy = double.OFFERED[f"{double.ROOT}.ipu_strategy"][0]
    own, strategy.call_for_each_replica = strategy.call_for_each_replica, caught
    step, _ = step_of(function, config, TensorFlowIpu(IpuDevice("ipu", None)))
    try:
        step.build()
        step.compile()
    except Traced as found:
        program, args, concrete = found.args
        wide = config.precision == "16.32" and "application" in function.__name__

        def hlo() -> str:
            return str(program.experimental_get_compiler_ir(*args)(stage="hlo"))

        yield Program(name, concrete, step.describe()["precision"], wide, hlo)
    finally:
        strategy.call_for_each_replica = own
        step.close()


def cases() -> Iterator[Tuple[str, Any, Any]]:
    """Yield (name, configuration, bench function) of each program."""
    for function in bench_functions(bench_kernels, bench_inference, bench_training):
        if "tensorflow" not in inspect.signature(function).parameters:
            continue
        seen: Set[str] = set()
        for family in families(function):
            for config, tier in family.points:
                if tier == SWEEP:
                    continue
                if config.system == "host":
                    continue
                config = dataclasses.replace(config, data="synthetic")
                if hasattr(config, "instances"):
                    config = dataclasses.replace(config, instances=1)
                name = family.identifier(config, frozenset())
                if name not in seen:
                    seen.add(name)
                    yield name, config, function


def row(program: Program, found: Dict[str, List[str]]) -> List[str]:
    """Return a program's line of the table."""
    sizes = program.largest().values()
    return [
        program.name,
        str(len(program.operations)),
        ", ".join(f"{n} {types}" for types, n in sorted(batch_norms(program).items())),
        ", ".join(f"{ours / 1e6:.1f}" for ours, _ in sizes),
        str(time_loops(program) or ""),
        ", ".join(f"{name}: {len(faults)}" for name, faults in found.items() if faults) or "none",
    ]


HEADER = ["program", "operations", "batch norms", "largest tensor (MB)", "own loops", "found"]


def main(words: Sequence[str]) -> int:
    """Print the table, and below it what was found; return 1 where that is anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; every case without")
    names = parser.parse_args(words).names
    os.environ["TF_POPLAR_FLAGS"] = "--use_synthetic_data --synthetic_data_initializer=normal"
    rows, faults = [], []
    for name, config, function in cases():
        if names and not any(part in name for part in names):
            continue
        with traced(name, config, function) as program:
            found = {check: look(program) for check, look in CHECKS.items()}
            rows.append(row(program, found))
        print(" | ".join(rows[-1]), flush=True)
        for check, lines in found.items():
            faults += [f"{name}: {check}: {line}" for line in sorted(set(lines))]
    print(markdown_table(HEADER, rows))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
