"""A record of what each image case is: its options, its facts and its TensorFlow program.

``python -m scripts.image_programs [PART]`` prints a digest for each case. Part ``cases`` has the
options of all image cases. The others, as ``ipu-real``, have the traced programs of TensorFlow's
cases with one mode of data, with tests/doubles standing in for the SDK; each needs a process of its
own, and TensorFlow 2.6. Without a part it runs all. It compares the digests with those in
tests/nightly/image_programs.txt and exits with 1 if one differs (``!``) or a recorded case is gone
(``-``): a change of the code that should change no program changes none. A case without a digest
there is new (``+``). ``--write`` stores each digest as soon as it is known, and ``--missing``
computes only those that are not stored, to continue a run that ended early. ``--show=NAME`` prints
the text of a digest, ``--against=REV`` its difference from that of another commit, which need not
have this script, and whether it is only the order of operations (scripts/data_flow.py).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import enum
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Set, Tuple
from unittest import mock

from ipubench import bench_inference, bench_training
from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.options import option_types, plain_options
from ipubench.fixtures.case.values import type_name
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.sources import source
from ipubench.fixtures.machine.files import write_atomically
from ipubench.plugins.listing.describe import meaning
from scripts.data_flow import data_flow
from scripts.steps import bench_functions, families, step_of, tensorflow_module

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
FILE = ROOT / "tests" / "nightly" / "image_programs.txt"
CASES = "cases"
TRACED = ("bench_cnn_tensorflow", "bench_application")
PARTS = (
    CASES,
    *(f"{kind}-{data}" for kind in ("cpu", "ipu") for data in ("synthetic", "generated", "real")),
)
FLAGS = {"synthetic": "--use_synthetic_data --synthetic_data_initializer=normal"}
#: Attributes that name Python's functions and arguments, or count them in a process.
NAMES = {
    "token",
    "_user_specified_name",
    "_gradient_op_type",
    "_forward_func_name",
    "_backward_function_name",
    "_forward_function_name",
}
LONGEST = 200

Case = Tuple[str, Any, Any]


def cases() -> Iterator[Case]:
    """Yield (node id, configuration, bench function) of each image case; the first id counts."""
    seen: Set[str] = set()
    for function in bench_functions(bench_inference, bench_training):
        for family in families(function):
            for config, _ in family.configurations:
                identifier = family.identifier(config, frozenset())
                name = f"{node_id(function)}[{identifier}]"
                if name not in seen:
                    seen.add(name)
                    yield name, config, function


def node_id(function: Any) -> str:
    """Return pytest's name of a bench function."""
    file = function.__module__.replace(".", "/").replace("ipubench/", "", 1)
    return f"{file}.py::{function.__name__}"


def texts(part: str) -> Iterator[Tuple[str, Callable[[], str]]]:
    """Yield (name, a function that returns the text) of a part."""
    if part == CASES:
        for function in bench_functions(bench_inference, bench_training):
            marks = [str(sorted(mark.kwargs.items())) for mark in function.pytestmark]  # type: ignore[attr-defined]
            yield node_id(function), partial("\n".join, marks)
        for name, config, _ in cases():
            yield name, partial(options_text, config)
        return
    kind, _, mode = part.partition("-")
    for name, config, function in cases():
        host = config.system == "host"
        if function.__name__ in TRACED and host == (kind == "cpu") and config.data == mode:
            yield name, partial(program_text, config, function, host)


def options_text(config: Any) -> str:
    """Return what --describe shows of a case, what decides its identity, and what follows."""
    kinds = option_types(type(config))
    values = plain_options(config)
    lines = [
        f"{field.name}={values[field.name]} ({type_name(kinds[field.name])}): {meaning(field)}"
        for field in dataclasses.fields(config)
    ]
    with contextlib.suppress(ValueError):
        config.check()
        lines.append("accepted")
    derived = {
        name: getattr(config, name) for name in ("ipus", "shown_batch", "needs_cpu", "warnings")
    }
    idle = sorted(config.idle().items())
    return "\n".join([*lines, f"hash={config_hash(config, frozenset())}", f"{derived}", f"{idle}"])


# --- programs --------------------------------------------------------------------------------


def program_text(config: Any, function: Any, host: bool) -> str:
    """Return a case's facts and its traced program."""
    data = Data(lambda *key: source(key, None, os.environ))
    patched = mock.patch("scripts.steps.DATA", data)
    # What a case prints is no part of its text.
    with patched, warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        facts, graph = (host_program if host else ipu_program)(config, function)
    return "\n".join([*facts, *graph_lines(graph)])


def host_program(config: Any, function: Any) -> Tuple[List[str], Any]:
    """Return the facts and the graph of a case on a CPU without 16-bit types."""
    from ipubench.fixtures.devices.cpu import CpuDevice

    image_step = tensorflow_module("host.host_step", "host.step").ImageStep
    device = CpuDevice(pin=False)
    device.half, device.threads = "float32", 1
    runtime = tensorflow_module("host.tensorflow_host", "on_host").TensorFlowHost(device)
    tf = runtime.tf
    tf.random.set_seed(1)  # random labels are constants of the graph
    # Graphs are saved as they were traced, so rewriting them would only take time.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    step, items = step_of(function, config, runtime)
    try:
        step.build()
        # A call without a batch takes as long as tracing, in a large network.
        with mock.patch.object(image_step, "_fetched", traced_only):
            step.compile()
        facts = facts_of(step, items)
        with tempfile.TemporaryDirectory() as folder:
            step.save_graph(Path(folder))
            graph = tf.compat.v1.GraphDef.FromString((Path(folder) / "graph.pb").read_bytes())
    finally:
        step.close()
    return facts, graph


def traced_only(step: Any, batches: int) -> None:
    """Trace the work of a step in place of a call."""
    step._run.get_concrete_function()


def ipu_program(config: Any, function: Any) -> Tuple[List[str], Any]:
    """Return the facts, the SDK's calls and the graph of a case on IPUs."""
    from ipubench.fixtures.devices.ipu import IpuDevice
    from scripts.ipu_lint import Traced, first_trace
    from tests.doubles import tensorflow_ipu as double
    from tests.doubles.tensorflow_ipu.program import Extended
    from tests.doubles.tensorflow_ipu.record import recorder

    sys.modules.update(double.modules())
    recorder.one_micro_batch = True
    if hasattr(config, "instances"):
        config = dataclasses.replace(config, instances=1)
    runtime = tensorflow_module("ipu.tensorflow_ipu", "on_ipu").TensorFlowIpu(IpuDevice())
    step, items = step_of(function, config, runtime)
    try:
        with mock.patch.object(Extended, "call_for_each_replica", first_trace):
            step.build()
            step.compile()
    except Traced as found:
        calls = [f"{name} {json_text(given)}" for name, given in recorder.calls]
        configured = json_text(recorder.configured)
        facts = [*facts_of(step, items), configured, *calls]
        return facts, found.args[2].graph.as_graph_def()
    finally:
        step.close()
    raise AssertionError("the program was not traced")


def facts_of(step: Any, items: float) -> List[str]:
    """Return what a record has from a step that has not run, and what the meter reads of it."""
    read = (read_by_meter if hasattr(step, "rounds") else read_of_one_object)(step)
    facts = {
        **{name: read.pop(name) for name in list(read)[: -len(COUNTED)]},
        "items": items,
        "describe": step.describe(),
        "feed": step.feed.describe(),
        **read,
    }
    return [f"{name}: {json_text(value)}" for name, value in facts.items()]


#: The last of what the meter reads.
COUNTED = ("counters", "flops", "traffic", "lengths")


def read_by_meter(step: Any) -> Dict[str, Any]:
    """Return what the meter reads of a step."""
    from ipubench.fixtures.runtimes.step import ask

    rounds, loading = step.rounds, step.loading
    return {
        "dropped": rounds.dropped,
        "batches_per_step": step.batches_per_step,
        "calibrated": rounds.calibrated,
        "round_options": rounds.options,
        "most_rounds": ask(rounds.most),
        "exact_flops": step.work.exact,
        "prefetched_batches": loading.prefetched,
        "burst": loading.burst,
        "counted_processes": step.counted_processes,
        "not_compiled": step.not_compiled,
        "counters": sorted(ask(step.counters) or {}),
        "flops": ask(step.work.flops_per_item),
        "traffic": ask(step.work.weight_traffic),
        "lengths": [step.batches_per_step] if step.lengths is None else step.lengths(),
    }


def read_of_one_object(step: Any) -> Dict[str, Any]:
    """Return the same at a commit whose steps have all this as members, with ``--against``."""
    names = (
        *("dropped", "batches_per_step", "calibrated", "round_options", "most_rounds"),
        *("exact_flops", "prefetched_batches", "burst", "counted_processes", "not_compiled"),
    )
    counted = (
        *(sorted(step.counters()), step.flops_per_item()),
        *(step.weight_traffic(), step.lengths()),
    )
    return {**{name: getattr(step, name) for name in names}, **dict(zip(COUNTED, counted))}


def json_text(value: Any) -> str:
    """Return a value as text that is the same in each process."""

    def plain(other: Any) -> Any:
        if isinstance(other, enum.Enum):
            return str(other)
        return [
            type(other).__name__,
            str(getattr(other, "shape", "")),
            str(getattr(other, "dtype", "")),
        ]

    text = json.dumps(value, sort_keys=True, default=plain)
    return text.replace(str(Path.home()), "~")


def graph_lines(graph: Any) -> List[str]:
    """Return a line for each operation of a GraphDef and of the functions that it calls.

    Names that Python's functions give are replaced by numbers.
    """
    library = {function.signature.name: function for function in graph.library.function}
    numbers: Dict[str, str] = {}
    waiting: List[str] = []

    def number(name: str) -> str:
        if name in library and name not in numbers:
            numbers[name] = f"function{len(numbers)}"
            waiting.append(name)
        return numbers.get(name, name)

    lines = [*_operations(graph.node, (), number)]
    while waiting:
        function = library[waiting.pop(0)]
        inputs = [one.name for one in function.signature.input_arg]
        lines.append(f"{numbers[function.signature.name]}: {len(inputs)} inputs")
        lines += _operations(function.node_def, inputs, number)
        places = _places(function.node_def, inputs)
        outputs = [function.ret[one.name] for one in function.signature.output_arg]
        lines.append(f"returns {[_input(output, places) for output in outputs]}")
    return lines


def _places(nodes: Iterable[Any], inputs: Sequence[str]) -> Dict[str, str]:
    found = {name: f"in{index}" for index, name in enumerate(inputs)}
    found.update((node.name, f"%{index}") for index, node in enumerate(nodes))
    return found


def _input(text: str, places: Dict[str, str]) -> str:
    control, name = text[:1] == "^", text.lstrip("^")
    node, _, output = name.partition(":")
    return f"{'^' * control}{places[node]}:{output}"


def _operations(nodes: Any, inputs: Sequence[str], number: Callable[[str], str]) -> Iterator[str]:
    places = _places(nodes, inputs)
    for node in nodes:
        attributes = [
            f"{name}={_attribute(node.attr[name], number)}"
            for name in sorted(node.attr)
            if name not in NAMES
        ]
        taken = [_input(text, places) for text in node.input]
        taken = [text for text in taken if text[0] != "^"] + sorted(t for t in taken if t[0] == "^")
        yield f"{places[node.name]} {node.op}({', '.join(taken)}) {' '.join(attributes)}"


def _attribute(value: Any, number: Callable[[str], str]) -> str:
    if value.HasField("func"):
        return number(value.func.name)
    if value.HasField("list") and value.list.func:
        return str([number(function.name) for function in value.list.func])
    text = " ".join(str(value).split())
    return text if len(text) < LONGEST else digest(text)


# --- the file --------------------------------------------------------------------------------


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded(part: str) -> Dict[str, str]:
    """Return name -> digest of a part in the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    found = [line.split() for line in lines]
    return {name: value for of, name, value in found if of == part}


def write(part: str, digests: Dict[str, str]) -> None:
    """Replace the digests of a part in the file."""
    of_parts = {**{other: recorded(other) for other in PARTS}, part: digests}
    lines = [f"{of} {name} {value}\n" for of in PARTS for name, value in of_parts[of].items()]
    write_atomically(FILE, "".join(sorted(lines)))


def elsewhere(revision: str, part: str, name: str) -> str:
    """Return a text at another commit, in its own checkout. Raises CalledProcessError.

    The scripts are those of this commit, so that both texts are of one kind.
    """
    git = (shutil.which("git") or "git", "-C", str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        adding = ("worktree", "add", "--quiet", "--detach", str(tree), revision)
        subprocess.run([*git, *adding], check=True)
        try:
            shutil.copytree(SCRIPTS, tree / "scripts", dirs_exist_ok=True)
            command = [sys.executable, "-m", "scripts.image_programs", part, f"--show={name}"]
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            done = subprocess.run(
                command, cwd=str(tree), env=environment, check=True, stdout=subprocess.PIPE
            )
            return done.stdout.decode()
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)


def main(arguments: Sequence[str]) -> int:
    """Print digests, a text or a difference. Returns 1 if they are not those of the file, or if
    the other commit's text differs or cannot be made.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS, nargs="?")
    parser.add_argument("only", nargs="*", help="parts of names")
    parser.add_argument("--show", help="the full name of one text, without its part")
    parser.add_argument("--against", help="a commit, for --show")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--missing", action="store_true")
    given = parser.parse_args(arguments)
    if (given.show and not given.part) or (given.against and not given.show):
        parser.error("--against needs --show, and --show needs a part")
    if given.part is None:
        command = [sys.executable, "-m", "scripts.image_programs"]
        return max(subprocess.run([*command, part, *arguments]).returncode for part in PARTS)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if given.part.startswith("ipu"):
        os.environ["TF_POPLAR_FLAGS"] = FLAGS.get(given.part[4:], "")
    found = dict(texts(given.part))
    names = {*found, *recorded(given.part)}
    unknown = [word for word in given.only if not any(word in name for name in names)]
    unknown += [given.show] if given.show and given.show not in found else []
    if unknown:
        parser.error(f"part {given.part} has no {', '.join(unknown)}")
    if not given.show:
        return compare(given.part, given.only, given.write, given.missing)
    if given.against:
        return difference(given.part, given.show, given.against, found[given.show])
    print(found[given.show]())
    return 0


def compare(part: str, only: Sequence[str], written: bool, missing: bool) -> int:
    """Print the digests of names with one of ``only``; return 1 if one differs or is gone."""
    before = recorded(part)
    after = dict(before)
    gone = {name for name in before if not only or any(word in name for word in only)}
    for name, text in texts(part):
        gone.discard(name)
        if (only and not any(word in name for word in only)) or (missing and name in before):
            continue
        after[name] = digest(text())
        mark = " " if before.get(name) == after[name] else "!" if name in before else "+"
        print(mark, part, name, after[name], flush=True)
        if written:
            write(part, after)
        gc.collect()  # graphs and their functions refer to each other
    for name in sorted(gone):
        print("-", part, name, after.pop(name))
    if written:
        write(part, after)
        return 0
    return int(any(after.get(name) != value for name, value in before.items()))


def difference(part: str, name: str, revision: str, text: Callable[[], str]) -> int:
    """Print how a text differs from that of another commit; return 1 if it does."""
    try:
        other = elsewhere(revision, part, name)
    except subprocess.CalledProcessError:
        print(f"there is no text of {name} at {revision}, as shown above", file=sys.stderr)
        return 1
    sides = (other.splitlines(), text().splitlines())
    found = list(difflib.unified_diff(*sides, revision, "here", lineterm="", n=2))
    print("\n".join(found) if found else f"{name} is the same at {revision}")
    if found and data_flow(sides[0]) == data_flow(sides[1]):
        print("The data flow is the same: only the order of operations differs.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
