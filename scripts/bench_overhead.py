"""What the plugin costs: in throughput, and in a project whose tests measure nothing.

    pytest scripts/bench_overhead.py --budget=0.4
    pytest scripts/bench_overhead.py -k project

Each repeat measures a case twice in one process, with the meter and with a loop written here, over
the same weights and buffers. A canary runs before each round in both. PyTorch and ONNX Runtime run
the same compiled code in both; for TensorFlow the bare loop is another tf.function around the work
of a batch. At the end, the median ratio reported / bare is printed for each case.

`bench_project` collects the tests of an empty project with pytest alone, with pytest-benchmark, and
with the plugin too, also with a device in the project's settings. It runs as many benchmarks with
--benchmark-disable, and collects a single one, as each process of a comparison does. It prints the
least CPU time of each and its ratio to pytest-benchmark's.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

import pytest

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.machine.output import uncaptured
from ipubench.fixtures.runtimes.step import Step
from ipubench.plugins.state import run_of
from scripts.steps import kernel_cases, runtime_name, step_of

KERNELS = kernel_cases()
FUNCTIONS = {config.name: function for config, function in KERNELS}
REPEATS = 20
ROUND_SECONDS = 0.1
ROOT = Path(__file__).resolve().parents[1]
BENCHMARK = ("-p", "pytest_benchmark.plugin")
#: How pytest runs an empty project.
SIDES = {
    "pytest": ("-p", "no:benchmark"),
    "pytest-benchmark": BENCHMARK,
    "ipubench": (*BENCHMARK, "-p", "ipubench"),
    "with a device": (*BENCHMARK, "-p", "ipubench", "-o", "addopts=--device=cpu"),
}
MEASURES = "def test_{}(benchmark):\n    benchmark(len, ())\n"
PROJECT_TESTS, PROJECT_TURNS = 550, 7


class Prepared(Step):
    """A step that is already built and compiled and stays open, so both loops run the same one."""

    def __init__(self, step: Any) -> None:
        self.step = step
        self.feed = step.feed
        self.reference = step.reference

    def build(self) -> None:
        """Do nothing: the step is built."""

    def compile(self) -> bool:
        """Do nothing: the step is compiled."""
        return False

    def __call__(self) -> None:
        self.step.batches_per_step = self.batches_per_step
        self.step()

    def describe(self) -> Dict[str, Any]:
        facts: Dict[str, Any] = self.step.describe()
        return facts

    def close(self) -> None:
        """Do nothing: the step stays open."""


def bare_rate(
    run: Callable[[int], object], canary: Callable[[], None], items: float, seconds: float
) -> float:
    """Return items per second in the median round of a plain loop that lasts ``seconds``."""
    run(1)
    start = time.perf_counter()
    run(1)
    batches = max(1, round(ROUND_SECONDS / (time.perf_counter() - start)))
    start = time.perf_counter()
    run(batches)
    batches = max(1, round(batches * ROUND_SECONDS / (time.perf_counter() - start)))
    rounds: List[float] = []
    while sum(rounds) < seconds:
        canary()
        start = time.perf_counter()
        run(batches)
        rounds.append(time.perf_counter() - start)
    return items * batches / statistics.median(rounds)


@pytest.fixture(scope="session")
def ratios(request: pytest.FixtureRequest) -> Iterator[Dict[str, List[float]]]:
    """Collect ratios by case and print them at the end."""
    found: Dict[str, List[float]] = {}
    yield found
    with uncaptured(request.config):
        for name, values in found.items():
            print(
                f"\n{name}: reported / bare = {statistics.median(values):.4f} "
                f"(median of {len(values)}, {min(values):.3f} to {max(values):.3f})",
                end="",
            )


@dataclasses.dataclass
class Ready:
    """A built and compiled step and its bare loop."""

    step: Any
    items: float
    run: Callable[[int], object]  # runs a number of batches


@pytest.fixture(scope="session")
def prepared() -> Iterator[Dict[str, Ready]]:
    """Keep one step per case for all repeats."""
    found: Dict[str, Ready] = {}
    yield found
    for ready in found.values():
        ready.step.close()


def compare(
    name: str, repeat: int, ready: Ready, meter: Any, ratios: Dict[str, List[float]]
) -> None:
    """Measure with the meter and with the loop, alternating, and store the ratio."""
    seconds = options_of(meter.config).budget
    canary, bare = ready.step.reference.canary(), 0.0
    if repeat % 2:
        bare = bare_rate(ready.run, canary, ready.items, seconds)
    meter(Prepared(ready.step), items=ready.items, unit="items")
    if not repeat % 2:
        bare = bare_rate(ready.run, canary, ready.items, seconds)
    results = run_of(meter.config).results
    reported = results.benchmarks[meter.item.nodeid].record.throughput.median
    ratios.setdefault(name, []).append(reported / bare)


@pytest.mark.parametrize("repeat", range(REPEATS))
@cases(dataclasses.replace(HOST["resnet50"], micro_batch_size=16, data="synthetic"))
def bench_resnet50(
    config: Any, pytorch: Any, data: Any, meter: Any, repeat: int, ratios: Any, prepared: Any
) -> None:
    if config.name not in prepared:
        step = pytorch.inference(config.network(), config, config.feed(data))
        step.build()
        step.compile()
        prepared[config.name] = Ready(step, config.micro_batch_size, network_loop(step))
    compare("resnet50 batch 16", repeat, prepared[config.name], meter, ratios)


def network_loop(step: Any) -> Callable[[int], object]:
    """Return a bare loop over the step's compiled network and its input buffers."""
    import torch

    step._inputs = inputs = step._source()
    classify = step.network.engine.run

    def run(batches: int) -> None:
        with torch.inference_mode():
            for _ in range(batches):
                classify(next(inputs))

    return run


@pytest.mark.parametrize("repeat", range(REPEATS))
@cases(*(config for config, _ in KERNELS))
def bench_kernel(
    config: Any,
    request: pytest.FixtureRequest,
    meter: Any,
    repeat: int,
    ratios: Any,
    prepared: Any,
) -> None:
    if config.name not in prepared:
        function = FUNCTIONS[config.name]
        framework = runtime_name(function)
        step, items = step_of(function, config, request.getfixturevalue(framework))
        step.build()
        step.compile()
        run = tensorflow_loop(step) if framework == "tensorflow" else onnx_loop(step)
        prepared[config.name] = Ready(step, items, run)
    compare(config.name, repeat, prepared[config.name], meter, ratios)


def tensorflow_loop(step: Any) -> Callable[[int], object]:
    """Return a bare TensorFlow loop over the step's work and input buffers."""
    import tensorflow as tf

    @tf.function(jit_compile=step.describe()["xla"] or None)
    def loop(batches: Any) -> Any:
        index, total = tf.constant(0), tf.constant(0.0)
        while index < batches:
            # One batch at a time, as on a device.
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            batch = {name: ring[index % ring.shape[0]] for name, ring in step.ring.items()}
            total += step._process(batch)
            index += 1
        return total

    return lambda batches: float(loop(tf.constant(batches)))


def onnx_loop(step: Any) -> Callable[[int], object]:
    """Return a bare loop over the session or the modules that the step's engine runs."""
    engine = step.engine
    if step.describe()["engine"] == "onnxruntime":
        calls = engine._bound(engine._session)

        def run(batches: int) -> None:
            for index in range(batches):
                calls[index % len(calls)]()

        return run

    import torch

    from ipubench.models.onnx.network import LOSS

    training = step._config.mode == "training"
    parameters = engine.graph.parameters

    def train_or_infer(batches: int) -> None:
        with torch.enable_grad() if training else torch.inference_mode():
            for index in range(batches):
                values = engine.graph(engine.ring[index % len(engine.ring)])
                if training:
                    slopes = torch.autograd.grad(values[LOSS], parameters)
                    with torch.no_grad():
                        for parameter, slope in zip(parameters, slopes):
                            parameter.sub_(slope, alpha=step._config.learning_rate)
                del values

    return train_or_infer


@pytest.mark.parametrize(
    ("test", "count", "words", "sides"),
    [
        ("def test_{}():\n    pass\n", PROJECT_TESTS, ("--collect-only",), list(SIDES)),
        (MEASURES, PROJECT_TESTS, ("--benchmark-disable",), ["pytest-benchmark", "ipubench"]),
        (MEASURES, 1, ("--collect-only",), ["pytest-benchmark", "ipubench"]),
    ],
    ids=["collected", "disabled", "one"],
)
def bench_project(
    test: str,
    count: int,
    words: Sequence[str],
    sides: List[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    for number in range(0, count, 50):
        tests = "\n".join(test.format(one) for one in range(min(50, count - number)))
        (tmp_path / f"test_{number}.py").write_text(tests, encoding="utf-8")
    found: Dict[str, List[float]] = {side: [] for side in sides}
    for _ in range(PROJECT_TURNS):
        for side, seconds in found.items():
            seconds.append(cpu_seconds(tmp_path, *SIDES[side], *words))
    base = min(found["pytest-benchmark"])
    with uncaptured(request.config):
        for side, seconds in found.items():
            print(f"\n  {side:<17} {min(seconds):6.3f} s  {min(seconds) / base:.2f}", end="")


def cpu_seconds(folder: Path, *words: str) -> float:
    """Return the CPU time of a run of pytest in a folder."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=str(folder),
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
