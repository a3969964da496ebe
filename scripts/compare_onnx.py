"""How the runtime of PopART's kernels on a CPU compares with the obvious PyTorch programs.

For the lstm and conv kernels at several sizes it alternates, within one process and with the same
allocator:

- torch, onnxruntime: the step that the benchmark times, with either engine (* marks the choice);
- module: torch.nn.LSTM or torch.nn.Conv2d with the loss and torch.optim.SGD, called in a loop;
- channels last: the same convolution with its images and filters in that layout.

Rounds in which another program took a core are left out.

Usage: python -m scripts.compare_onnx [--precision 16.16] [--rounds 11] [--only lstm]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from ipubench.bench_kernels.bench_popart_conv import PopartConv, conv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm, lstm
from ipubench.fixtures.data.images.feed import ImageFolder
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.onnx.host import OnnxHost
from ipubench.fixtures.runtimes.shared import compute_dtypes
from ipubench.plugins.run.conditions import tune_allocator

SECONDS_PER_ROUND = 0.03
# A time is disturbed where threads waited longer than this share of it for a core.
LARGEST_WAIT = 0.01
TRIES = 20
MOST_DISTURBED = 1  # such rounds per round that was asked for
LEAST_ROUNDS = 3
BATCHES = 4  # inputs that take turns, in every program
CONFIGS: List[Any] = [
    PopartLstm(),
    PopartLstm(name="popart-lstm-t5-bs1-h128", timesteps=5, hidden_size=128),
    PopartLstm(name="popart-lstm-t10-bs8-h256", timesteps=10, batch_size=8, hidden_size=256),
    PopartLstm(name="popart-lstm-t25-bs64-h256", timesteps=25, batch_size=64, hidden_size=256),
    PopartLstm(name="popart-lstm-t25-bs64-h1024", timesteps=25, batch_size=64, hidden_size=1024),
    PopartConv(name="popart-conv-64x64", input_width=64, input_height=64),
    PopartConv(name="popart-conv-480x270-bs4", input_width=480, input_height=270, batch_size=4),
    PopartConv(),
]
Program = Callable[[int], None]  # runs so many batches


def no_images() -> ImageFolder:
    """Kernels have no real data."""
    raise AssertionError("kernels need no images")


def ours(host: OnnxHost, config: Any, engine: str) -> Tuple[Program, str]:
    """Return the benchmark's own step, and the engine that it runs."""
    network = lstm if isinstance(config, PopartLstm) else conv
    config = dataclasses.replace(config, engine=engine)
    step = host.loop(lambda dtype: network(config, dtype), config, config.feed(Data(no_images)))
    step.build()
    step.compile()
    return step.engine.run, step.describe()["engine"]


def module_program(config: Any, dtype: Any, channels_last: bool) -> Program:
    """Return the program that a user of PyTorch writes for the same computation."""
    import torch

    recurrent = isinstance(config, PopartLstm)
    if recurrent:
        module: Any = torch.nn.LSTM(config.hidden_size, config.hidden_size, bias=False)
        for weight in module.parameters():
            # As the kernel's: gates that are shut leave numbers too small to be normal, which cost
            # a float32 product up to three times its time.
            torch.nn.init.normal_(weight)
        shape: Tuple[int, ...] = (config.timesteps, config.batch_size, config.hidden_size)
        label_shape: Tuple[int, ...] = shape[:2]
    else:
        module = torch.nn.Conv2d(
            config.channel_size,
            config.filter_number,
            config.kernel_size,
            stride=config.stride,
            padding=config.padding,
        )
        shape = (
            config.batch_size, config.channel_size, config.input_height, config.input_width
        )  # fmt: skip
        label_shape = config.output_shape
    layout = torch.channels_last if channels_last else torch.contiguous_format
    module = module.to(dtype=dtype, memory_format=layout)
    inputs = [torch.randn(shape).to(dtype).contiguous(memory_format=layout) for _ in range(BATCHES)]
    labels = [torch.randint(0, 2, label_shape) for _ in range(BATCHES)]
    if not recurrent:
        labels = [value.to(dtype).contiguous(memory_format=layout) for value in labels]

    def loss_of(output: Any, label: Any) -> Any:
        if recurrent:
            return torch.nn.functional.cross_entropy(
                output.flatten(0, 1), label.flatten(), reduction="sum"
            )
        probabilities = torch.softmax(output.flatten(1), 1)
        return torch.nn.functional.mse_loss(probabilities, label.flatten(1), reduction="sum")

    optimizer = torch.optim.SGD(module.parameters(), lr=config.learning_rate)

    def forward(index: int) -> Any:
        output = module(inputs[index])
        output = output[0] if recurrent else output
        return output if config.mode == "inference" else loss_of(output, labels[index])

    def program(count: int) -> None:
        if config.mode != "training":
            with torch.inference_mode():
                for index in range(count):
                    forward(index % BATCHES)
            return
        for index in range(count):
            optimizer.zero_grad()
            forward(index % BATCHES).backward()
            optimizer.step()

    return program


def seconds(program: Program, batches: int) -> float:
    """Return the time of one batch."""
    start = time.perf_counter()
    program(batches)
    return (time.perf_counter() - start) / batches


def waited() -> float:
    """Return the seconds that threads of this process were ready and had no core (Linux)."""
    total = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has ended
            total += int(task.read_text(encoding="utf-8").split()[1])
    return total / 1e9


def undisturbed(program: Program, batches: int) -> Tuple[float, bool]:
    """Return the time of one batch, and whether no other program took a core meanwhile.

    One thread that loses its core holds up all the others at their next barrier, a hundred times
    the length of a small operation: such a time tells nothing. It is taken again, a few times.
    """
    for _ in range(TRIES):
        before = waited()
        value = seconds(program, batches)
        if waited() - before <= LARGEST_WAIT * value * batches:
            return value, True
    return value, False


def compare(programs: Dict[str, Program], rounds: int) -> Tuple[Dict[str, List[float]], int]:
    """Time each program once a round, each in turn the first.

    Returns the seconds per batch by program, of undisturbed rounds where there are enough, and
    the number of disturbed rounds.
    """
    counts = {}
    for name, program in programs.items():
        program(2)
        counts[name] = max(1, int(SECONDS_PER_ROUND / min(seconds(program, 2) for _ in range(5))))
    kept: List[Dict[str, float]] = []
    disturbed: List[Dict[str, float]] = []
    names = list(programs)
    while len(kept) < rounds and len(disturbed) < MOST_DISTURBED * rounds:
        shift = (len(kept) + len(disturbed)) % len(names)
        found = {n: undisturbed(programs[n], counts[n]) for n in names[shift:] + names[:shift]}
        quiet = all(fine for _, fine in found.values())
        (kept if quiet else disturbed).append({name: value for name, (value, _) in found.items()})
    used = kept if len(kept) >= LEAST_ROUNDS else kept + disturbed
    return {n: [found[n] for found in used] for n in names}, len(used) - len(kept)


def main() -> None:
    """Print one line per kernel, mode and program."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--precision", default="16.16", choices=("16.16", "16.32", "32.32"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="part of a kernel's name")
    parser.add_argument("--mode", default="", help="inference, evaluation or training")
    arguments = parser.parse_args()

    tune_allocator()
    device = CpuDevice()
    device.attach()
    host = OnnxHost(device)
    dtype = getattr(torch, compute_dtypes(device, arguments.precision)[0])
    print(
        f"PyTorch {torch.__version__}, {arguments.precision} as {dtype}, {device.threads} threads"
    )
    print("ratio: the program's time over that of the chosen engine (*), median of paired rounds")
    print(f"{'case':40} {'program':14} {'us/batch':>10} {'least':>10} {'ratio':>6}")
    for base in CONFIGS:
        for mode in ("inference", "evaluation", "training"):
            if arguments.only not in base.name or arguments.mode not in mode:
                continue
            config = dataclasses.replace(base, mode=mode, precision=arguments.precision)
            program, chosen = ours(host, config, "auto")
            programs = {f"{chosen}*": program}
            other = "onnxruntime" if chosen == "torch" else "torch"
            if mode != "training":
                programs[other] = ours(host, config, other)[0]
            programs["module"] = module_program(config, dtype, channels_last=False)
            if isinstance(config, PopartConv):
                programs["channels last"] = module_program(config, dtype, channels_last=True)
            times, disturbed = compare(programs, arguments.rounds)
            for name, values in times.items():
                ratio = statistics.median(a / b for a, b in zip(values, times[f"{chosen}*"]))
                label = f"{config.name}-{mode}"
                print(
                    f"{label:40} {name:14} {statistics.median(values) * 1e6:10.1f} "
                    f"{min(values) * 1e6:10.1f} {ratio:6.2f}"
                    + (f"  {disturbed} disturbed rounds" if disturbed else ""),
                    flush=True,
                )


if __name__ == "__main__":
    main()
