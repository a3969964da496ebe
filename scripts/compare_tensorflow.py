"""How our TensorFlow kernels compare with the obvious programs, side by side.

For each kernel it alternates, within one process and with the same allocator:

- ours: the step that the benchmark times, in both forms (TensorFlow's loop, XLA);
- keras: Keras layers under tf.function, called in a Python loop, batches made beforehand; for hmc
  tfp.mcmc.sample_chain under tf.function;
- keras xla: the same with jit_compile=True.

Usage: python -m scripts.compare_tensorflow [--precision 16.16] [--rounds 9] [--only gru]
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from typing import Any, Dict, Iterator, List

from ipubench.bench_kernels.bench_dense import Dense, bench_dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv, bench_grouped_conv
from ipubench.bench_kernels.bench_gru import Gru, bench_gru
from ipubench.bench_kernels.bench_hmc import Hmc, bench_hmc
from ipubench.bench_kernels.bench_lstm import Lstm, bench_lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti, bench_lstm_multi
from ipubench.bench_kernels.bench_rnn import Rnn, bench_rnn
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.shared import compute_dtypes
from ipubench.fixtures.runtimes.tensorflow.on_host import TensorFlowHost
from ipubench.plugins.run.conditions import tune_allocator
from scripts.kernel_cases import KernelCase
from scripts.tensorflow_peers import DATA, Program, peers

SECONDS_PER_ROUND = 0.1
BENCHES = {
    Dense: bench_dense,
    GroupedConv: bench_grouped_conv,
    Gru: bench_gru,
    Hmc: bench_hmc,
    Lstm: bench_lstm,
    LstmMulti: bench_lstm_multi,
    Rnn: bench_rnn,
}
# Each kernel's default, and larger shapes.
CONFIGS: List[Any] = [
    Dense(),
    Dense(name="dense-relu", include_activation=True),
    GroupedConv(),
    GroupedConv(name="grouped_conv-8-images", batch_size=8),
    GroupedConv(name="grouped_conv-groups-of-8", group_dim=8),
    Gru(),
    Gru(name="gru-8x10x256", batch_size=8, timesteps=10, hidden_size=256, input_size=256),
    Gru(name="gru-64x25x512", batch_size=64, timesteps=25, hidden_size=512, input_size=512),
    Lstm(),
    Lstm(name="lstm-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Lstm(name="lstm-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
    LstmMulti(),
    LstmMulti(name="lstm_multi-bs16", batch_size=16),
    LstmMulti(name="lstm_multi-bs128", batch_size=128),
    Rnn(),
    Rnn(name="rnn-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Rnn(name="rnn-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
    Hmc(),
]


def ours(host: TensorFlowHost, config: Any, xla: str) -> Program:
    """Return the benchmark's own step."""
    config = dataclasses.replace(config, xla=xla)
    case = KernelCase(BENCHES[type(config)], "tensorflow", config)
    step, _ = case.step(host, DATA)
    step.build()
    step.compile()

    def program(batches: int) -> None:
        step.run(batches)

    return program


def seconds(program: Program, batches: int) -> float:
    """Return the time of one batch."""
    start = time.perf_counter()
    program(batches)
    return (time.perf_counter() - start) / batches


def compare(programs: Dict[str, Program], rounds: int) -> Dict[str, List[float]]:
    """Time each program once a round, in turn; return seconds per batch by program."""
    counts = {}
    for name, program in programs.items():
        program(2)
        counts[name] = max(1, int(SECONDS_PER_ROUND / seconds(program, 2)))
    times: Dict[str, List[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            times[name].append(seconds(program, counts[name]))
    return times


def cases(base: Any, precision: str) -> Iterator[Any]:
    """Yield a configuration in each mode, and where it has input with each kind of data."""
    if isinstance(base, Hmc):
        yield base
        return
    for mode in ("inference", "training"):
        for data in ("synthetic", "generated"):
            yield dataclasses.replace(base, mode=mode, data=data, precision=precision)


def main() -> None:
    """Print one line per kernel, mode and program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--precision", default="16.16", choices=("16.16", "16.32", "32.32"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="part of a kernel's name")
    parser.add_argument("--data", default="", help="synthetic or generated only")
    arguments = parser.parse_args()

    tune_allocator()
    device = CpuDevice()
    device.attach()
    host = TensorFlowHost(device)
    tf, precision = host.tf, arguments.precision
    dtype = tf.as_dtype(compute_dtypes(device, precision)[0])
    print(f"TensorFlow {tf.__version__}, {precision} as {dtype.name}, {device.threads} threads")
    print("ratio: the program's time over the chosen form's (*), median of paired rounds")
    print(f"{'case':46} {'program':10} {'us/batch':>10} {'GFLOP/s':>8} {'ratio':>6}")
    for base in CONFIGS:
        for config in cases(base, precision) if arguments.only in base.name else ():
            if arguments.data not in config.data:
                continue
            chosen = "ours xla" if config.use_xla else "ours"
            programs = {"ours": ours(host, config, "off"), "ours xla": ours(host, config, "on")}
            if config.data == "synthetic":
                programs.update(peers(tf, config, dtype))
            times = compare(programs, arguments.rounds)
            for name, values in times.items():
                median = statistics.median(values)
                ratio = statistics.median(a / b for a, b in zip(values, times[chosen]))
                rate = "" if isinstance(config, Hmc) else f"{flops(config) / median / 1e9:.0f}"
                label = name + ("*" if name == chosen else "")
                case = f"{config.name}-{config.mode}-{config.data}"
                print(
                    f"{case:46} {label:10} {median * 1e6:10.1f} {rate:>8} {ratio:6.2f}", flush=True
                )


def flops(config: Any) -> float:
    """Return the FLOP of one batch."""
    repeats = config.block_repeats if isinstance(config, GroupedConv) else 1
    return float(config.flops_per_item() * config.batch_size * repeats)


if __name__ == "__main__":
    main()
