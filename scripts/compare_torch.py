"""Compare the engines of a PyTorch network on the CPU, side by side in one process.

    python scripts/compare_torch.py --model=resnet50 --batch-sizes=1,8,16

All run the same seeded network on the same images, in turn, so that a disturbance of the machine
meets each alike. The table gives the median of each and its ratio to plain torch.compile.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fixtures.devices.cpu import CpuDevice
from fixtures.errors import CaseError
from fixtures.runtimes.torch_engines import build_engine, default_engine
from models.torch.classification import ARCHITECTURES, build_classifier
from plugins.process import tune_allocator
from plugins.statistics import median
from plugins.units import short_number

ENGINES = ("eager", "onednn", "compile", "openvino")
REFERENCE = "plain torch.compile"


def main() -> int:
    """Print one table per batch size."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="resnet50", choices=ARCHITECTURES)
    parser.add_argument("--batch-sizes", default="1,8,16")
    parser.add_argument("--seconds", type=float, default=30.0, help="per batch size")
    options = parser.parse_args()
    tune_allocator()
    device = CpuDevice()
    device.attach()
    for batch_size in map(int, options.batch_sizes.split(",")):
        compare(device, options.model, batch_size, options.seconds)
    return 0


def compare(device: CpuDevice, model: str, batch_size: int, seconds: float) -> None:
    """Time every engine that is installed, alternating, and print the medians."""
    import torch

    torch.set_num_threads(device.threads)
    dtype = torch.bfloat16 if device.fast_bfloat16 else torch.float32
    network = build_classifier(model)
    size = ARCHITECTURES[model].image_size
    images = torch.randint(0, 255, (batch_size, 3, size, size), dtype=torch.uint8)
    runs: Dict[str, Callable[[Any], Any]] = {}
    for name in ENGINES:
        try:
            runs[name] = build_engine(
                name, network, tuple(images.shape), images.dtype, dtype, images.device,
                normalise=True,
            ).run  # fmt: skip
        except CaseError as error:
            print(f"{name}: left out, {error}")
    runs[REFERENCE] = _plain_compile(network, dtype)
    times = _alternate(runs, images, seconds)
    reference = median(times[REFERENCE])
    print(f"\n{model}, batch {batch_size}, {dtype}, {device.threads} threads")
    print(f"{'engine':22}{'images/s':>10}{'ratio':>8}{'rounds':>8}")
    for name, values in times.items():
        rate = short_number(batch_size / median(values))
        mark = " (auto)" if name == default_engine("cpu") else ""
        print(f"{name + mark:22}{rate:>10}{reference / median(values):>8.2f}{len(values):>8}")


def _plain_compile(network: Any, dtype: Any) -> Callable[[Any], Any]:
    """What a user would write first: torch.compile of the cast module, default settings."""
    import torch

    from fixtures.data.preprocess import MEAN, STD
    from models.torch.normalise import NormalisedInput

    module = NormalisedInput(network, MEAN, STD, dtype).to(dtype, memory_format=torch.channels_last)
    compiled: Callable[[Any], Any] = torch.compile(module.eval(), dynamic=False)
    return compiled


def _alternate(
    runs: Dict[str, Callable[[Any], Any]], images: Any, seconds: float
) -> Dict[str, List[float]]:
    import torch

    times: Dict[str, List[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for run in runs.values():
            for _ in range(3):
                run(images)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for name, run in runs.items():
                start = time.perf_counter()
                run(images)
                times[name].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
