"""Find what an IPU cannot do, or does slowly, in the traced programs of TensorFlow's IPU cases.

``python -m scripts.ipu_lint [NAME ...]`` traces each case (or those whose names contain a NAME)
with tests/doubles standing in for the SDK, on TensorFlow 2.6 like the SDK's. It prints a table and
exits with 1 if it finds something. Nothing is compiled for an IPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import inspect
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Sequence, Set, Tuple
from unittest import mock

from ipubench import bench_inference, bench_kernels, bench_training
from ipubench.fixtures.case.cases import SWEEP
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.servers.tensorflow_serving.export import export_on_ipu
from scripts.hlo_loops import Module
from scripts.markdown_table import markdown_row
from scripts.steps import DATA, bench_functions, families, step_of, tensorflow_module
from tests.doubles import tensorflow_ipu as double
from tests.doubles.tensorflow_ipu.batch_norms import HALF_BATCH_NORM
from tests.doubles.tensorflow_ipu.program import Extended
from tests.doubles.tensorflow_ipu.record import ONE_OPERATION, STAND_IN, recorder

#: compiler/plugin/poplar/kernels/poprand; on other devices TensorFlow uses GetAlg, a constant.
KEYS = "StatelessRandomGetKeyCounter"
RANDOM = {KEYS, "StatelessRandomGetAlg", "StatelessMultinomial"} | {
    f"Stateless{kind}{version}"
    for kind in ("RandomUniform", "RandomUniformInt", "RandomNormal", "TruncatedNormal")
    for version in ("", "V2")
}
#: The operations of our programs. XLA registers each for every device (tensorflow,
#: compiler/tf2xla/kernels), and the SDK removes none. Look up a new one there and in
#: compiler/plugin/poplar/driver/xla_ipu_common.cc.
NAMES = """
    AddN AddV2 ArgMax AssignAddVariableOp AssignSubVariableOp AssignVariableOp BatchMatMulV2
    BiasAdd BiasAddGrad BroadcastGradientArgs Cast ConcatV2 Const Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
    DepthwiseConv2dNativeBackpropInput DivNoNan Equal ExpandDims Fill FloorDiv FloorMod
    FusedBatchNormGradV3 FusedBatchNormV3 Greater Identity IdentityN If IsFinite Less Log
    LogSoftmax LogicalAnd MatMul MaxPool MaxPoolGrad Maximum Mean Mul Neg NoOp OneHot Pack Pad
    PartitionedCall Placeholder Pow ReadVariableOp RealDiv Relu ReluGrad Reshape ReverseV2 Rsqrt
    RsqrtGrad SelectV2 Shape ShapeN Sigmoid SigmoidGrad Slice Softmax
    SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits Split SplitV Sqrt Square
    SquaredDifference Squeeze StatefulPartitionedCall StatelessWhile StopGradient StridedSlice
    StridedSliceGrad Sub Sum Tanh TanhGrad TensorListReserve TensorListSetItem TensorListStack
    Tile Unpack While ZerosLike
"""
OPERATIONS = RANDOM | set(NAMES.split())
#: compiler/plugin/poplar/driver/xla_ipu_common.cc.
TYPES = {"int32", "int64", "float32", "float16", "bool", "resource", "variant"}
OF_BYTES = {"Cast", "Identity", "Reshape", "ExpandDims", "BroadcastTo", "Placeholder"}
WHILES = {"While", "StatelessWhile"}
#: These pass through the output of another operation.
PASSING = {"Placeholder", "PartitionedCall", "StatefulPartitionedCall", "Identity", "IdentityN"}
#: XLA computes the first three at compile time. The last are outputs that only a CPU's batch norm
#: has, and nothing reads them.
NO_SHAPE = PASSING | {"BroadcastGradientArgs", "Shape", "ShapeN", "ZerosLike", "FusedBatchNormV3"}
#: Runs on the host, called from within a program.
ON_HOST = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "Print", "PrintV2", "Assert"}
LARGEST_CONSTANT = 1 << 20
#: The SDK's TensorFlow computes these in their input type, stock TensorFlow in float32.
NOT_WIDENED = ("softmax_cross_entropy_with_logits", "moments")


@dataclass(frozen=True)
class Operation:
    """One operation, the functions that contain it, and the loops around it."""

    node: Any
    path: Tuple[str, ...]
    loops: int

    @property
    def stage(self) -> str:
        """The pipeline stage that contains it; "" outside a pipeline."""
        found = [name for name in self.path if "stage" in name]
        return found[0].split("stage")[1].split("_")[0] if found else ""

    @property
    def is_half_norm(self) -> bool:
        """Whether it is the stand-in's call for a batch norm of half types."""
        return any(HALF_BATCH_NORM in name for name in called_by(self.node))

    @property
    def is_widened(self) -> bool:
        """Whether only stock TensorFlow, not the SDK's, computes this in float32."""
        return any(name in self.node.name for name in NOT_WIDENED)

    def __str__(self) -> str:
        return f"{self.node.type} {self.node.name} in {'/'.join(self.path) or 'the program'}"


@dataclass
class Program:
    """One case's program for an IPU. ``wide_norms``: the original's batch norms are float32."""

    name: str
    concrete: Any
    compute: str
    wide_norms: bool
    hlo: Callable[[], str]

    def __post_init__(self) -> None:
        self.operations = list(operations(self.concrete.graph))
        self.weights = {tuple(v.shape.as_list()) for v in self.concrete.graph.variables}

    def tensors(self) -> Iterator[Tuple[Operation, Any, int]]:
        """Yield every numeric tensor, with its operation and its number of elements."""
        for operation in self.operations:
            for tensor in operation.node.outputs:
                if tensor.dtype.name not in ("resource", "variant"):
                    yield operation, tensor, tensor.shape.num_elements() or 0

    def largest(self) -> Dict[str, Tuple[int, int]]:
        """Return stage -> bytes of its largest tensor except weights, and of the original's.

        The original stores floating-point values in its compute type.
        """
        wide = 4 if self.wide_norms or self.compute == "float32" else 2
        found: Dict[str, Tuple[int, int]] = {}
        for operation, tensor, count in self.tensors():
            known = tensor.shape.rank is not None and tensor.shape.is_fully_defined()
            if operation.is_widened or operation.node.type in PASSING:
                continue
            if known and tuple(tensor.shape) in self.weights:
                continue
            ours, theirs = found.get(operation.stage, (0, 0))
            size = tensor.dtype.size
            original = count * (wide if tensor.dtype.is_floating else size)
            found[operation.stage] = (max(ours, count * size), max(theirs, original))
        return found


def operations(
    graph: Any, path: Tuple[str, ...] = (), loops: int = 0, functions: Any = None, seen: Any = None
) -> Iterator[Operation]:
    """Yield the operations of a graph and of the functions that it calls, once each.

    Stand-in code for the SDK's operations is left out, or counts as one call.
    """
    functions = {} if functions is None else functions
    seen = set() if seen is None else seen
    functions.update({getattr(n, "decode", n.__str__)(): f for n, f in graph._functions.items()})
    for node in graph.get_operations():
        if STAND_IN in node.name.split("/"):
            continue
        yield Operation(node, path, loops)
        for name in called_by(node):
            if ONE_OPERATION not in name and name in functions and name not in seen:
                seen.add(name)
                inner, depth = functions[name].graph, loops + (node.type in WHILES)
                yield from operations(inner, (*path, name), depth, functions, seen)


def called_by(node: Any) -> List[str]:
    """Return the functions that an operation calls."""
    attributes = node.node_def.attr.values()
    found = [a.func.name for a in attributes if a.HasField("func")]
    return found + [f.name for a in attributes if a.HasField("list") for f in a.list.func]


# --- the checks ------------------------------------------------------------------------------


def unknown_operations(program: Program) -> List[str]:
    """Find operations and types that the IPU's XLA device does not register."""
    found = [f"unknown: {o}" for o in program.operations if o.node.type not in OPERATIONS]
    for operation, tensor, _ in program.tensors():
        more = {"uint8"} if operation.node.type in OF_BYTES else set()
        more |= {"uint64"} if operation.node.type == KEYS else set()
        if tensor.dtype.name not in TYPES | more:
            found.append(f"{tensor.dtype.name}: {operation}")
    return found


def batch_norms(program: Program) -> Dict[str, int]:
    """Return the number of batch norms, forward and backward, for each pair of types T/U."""
    found: Dict[str, int] = Counter()
    for operation in program.operations:
        node = operation.node
        if operation.is_half_norm:
            found["float16/float16"] += 1
        elif node.type.startswith("FusedBatchNorm"):
            found["/".join(node.get_attr(name).name for name in ("T", "U"))] += 1
    return found


def cast_norms(program: Program) -> List[str]:
    """Find batch norms that cast their images although the original's do not."""
    counts = {} if program.wide_norms else batch_norms(program)
    return [f"{n} batch norms are {t}" for t, n in counts.items() if len(set(t.split("/"))) > 1]


def widened(program: Program) -> List[str]:
    """Find activations that are cast to float32 although the case computes in float16.

    Checks images and sequences anywhere, and all casts in a loop over time.
    """
    found = []
    for operation, tensor, _ in program.tensors():
        node, shape = operation.node, tuple(tensor.shape) if tensor.shape.rank else ()
        if node.type != "Cast" or tensor.dtype.name != "float32" or operation.is_widened:
            continue
        source = node.inputs[0].dtype.name
        allowed = shape in program.weights or (program.wide_norms and source == "float16")
        allowed |= program.compute != "float16" or len(shape) < (2 if operation.loops > 1 else 3)
        if not allowed:
            found.append(f"{source} to float32 {shape}: {operation}")
    return found


def larger_stages(program: Program) -> List[str]:
    """Find stages whose largest tensor is larger than the original's."""
    found = program.largest().items()
    return [
        f"stage {s or 0}: {ours} bytes, not {theirs}"
        for s, (ours, theirs) in found
        if ours > theirs
    ]


def time_loops(program: Program) -> int:
    """Return how many loops a program has, besides the SDK's own."""
    return sum(o.node.type in WHILES and o.loops > 0 for o in program.operations)


def lasting_whiles(program: Program) -> List[str]:
    """Find loops that do not become repeats."""
    found = Module(program.hlo()).loops() if time_loops(program) else []
    return [f"{name}: {why}" for name, why in found if why]


def unregistered_random(program: Program) -> List[str]:
    """Find random operations that the SDK does not have."""
    drawn = [o for o in program.operations if "Random" in o.node.type or "Rng" in o.node.type]
    return [str(o) for o in drawn if o.node.type not in RANDOM]


def unknown_shapes(program: Program) -> List[str]:
    """Find tensors whose shape is unknown at compile time."""
    read = [(t, o) for o, t, _ in program.tensors() if t.consumers()]
    unknown = [(t, o) for t, o in read if not t.shape.is_fully_defined()]
    return [f"{tensor.shape}: {o}" for tensor, o in unknown if o.node.type not in NO_SHAPE]


def large_constants(program: Program) -> List[str]:
    """Find constants above 1 MiB."""
    constants = [(t, o, n) for o, t, n in program.tensors() if o.node.type == "Const"]
    sizes = [(n * tensor.dtype.size, o) for tensor, o, n in constants]
    return [f"{size} bytes: {o}" for size, o in sizes if size > LARGEST_CONSTANT]


def host_work(program: Program) -> List[str]:
    """Find operations that run on the host while the program runs."""
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
    """Raised to leave a case as soon as its program has been traced."""


def first_trace(strategy: Any, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Trace a program in place of the strategy, and leave the case."""
    raise Traced(fn.__self__, args, fn(*args))


@contextlib.contextmanager
def traced(name: str, config: Any, function: Any) -> Iterator[Program]:
    """Yield the program of a case for an IPU."""

    def exported(fn: Any, folder: Any, iterations: int, signature: Any, **_: Any) -> Any:
        program = session.tf.function(fn, jit_compile=True, autograph=False)
        raise Traced(program, (), program.get_concrete_function(*signature))

    device = IpuDevice()
    modules = double.modules()
    modules[double.ROOT].serving = SimpleNamespace(export_single_step=exported)  # type: ignore[attr-defined]
    sys.modules.update(modules)
    recorder.one_micro_batch = True
    session = tensorflow_module("ipu.ipu_step", "ipu.step").start(device, synthetic=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Extended, "call_for_each_replica", first_trace))
        try:
            if "serving" in function.__name__:
                feed = config.validation_feed(DATA)()
                export_on_ipu(session, config.classifier(), config, feed, Path())
            runtime = tensorflow_module("ipu.tensorflow_ipu", "on_ipu").TensorFlowIpu(device)
            step, _ = step_of(function, config, runtime)
            stack.callback(step.close)
            step.build()
            step.compile()
        except Traced as found:
            program, args, concrete = found.args

        def hlo() -> str:
            return str(program.experimental_get_compiler_ir(*args)(stage="hlo"))

        compute = "float32" if config.precision == "32.32" else "float16"
        wide = config.precision == "16.32" and "cnn" not in function.__name__
        yield Program(name, concrete, compute, wide, hlo)


def cases() -> Iterator[Tuple[str, Any, Any]]:
    """Yield (name, configuration, bench function) for each program; a sweep yields its two ends."""
    for function in bench_functions(bench_inference, bench_kernels, bench_training):
        seen: Set[str] = set()
        wanted = {"tensorflow", "tensorflow_serving"} & set(inspect.signature(function).parameters)
        for family in families(function) if wanted else ():
            for config, tier in family.configurations:
                if tier == SWEEP or config.system == "host":
                    continue
                changes: Dict[str, Any] = {"data": "synthetic"}
                if hasattr(config, "instances"):
                    changes["instances"] = 1
                config = dataclasses.replace(config, **changes)
                name = family.identifier(config, frozenset())
                if name not in seen:
                    seen.add(name)
                    yield name, config, function


HEADER = ["program", "operations", "batch norms", "largest tensor (MB)", "own loops", "found"]


def row(program: Program, found: Dict[str, List[str]]) -> List[str]:
    """Return a program's line of the table, with the largest tensor of each stage."""
    return [
        program.name,
        str(len(program.operations)),
        ", ".join(f"{n} {types}" for types, n in sorted(batch_norms(program).items())),
        ", ".join(f"{ours / 1e6:.1f}" for _, (ours, _) in sorted(program.largest().items())),
        str(time_loops(program) or ""),
        ", ".join(f"{name}: {len(faults)}" for name, faults in found.items() if faults) or "none",
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the table row by row, then the findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names")
    names = parser.parse_args(arguments).names
    chosen = [one for one in cases() if not names or any(part in one[0] for part in names)]
    if not chosen:
        parser.error(f"no case has {' or '.join(names)} in its name")
    os.environ["TF_POPLAR_FLAGS"] = "--use_synthetic_data --synthetic_data_initializer=normal"
    faults = []
    print(f"{markdown_row(HEADER)}\n{markdown_row(['---'] * len(HEADER))}", flush=True)
    for name, config, function in chosen:
        with traced(name, config, function) as program:
            found = {check: look(program) for check, look in CHECKS.items()}
            print(markdown_row(row(program, found)), flush=True)
        for check, lines in found.items():
            faults += [f"{name}: {check}: {line}" for line in sorted(set(lines))]
        del program
        gc.collect()  # graphs and their functions refer to each other
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
