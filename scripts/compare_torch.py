"""Compare the engines of PyTorch networks on the CPU with the programs that people run otherwise.

    python scripts/compare_torch.py --models=resnet50,mobilenet --batch-sizes=1,16
    python scripts/compare_torch.py --models=all --engines=auto

Ours take raw uint8 images and normalise them. The peers get images that are normalised already, in
the type that computes: torchvision's network as it is and under torch.compile, OpenVINO with its
LATENCY hint on the same network, and timm's network as timm's benchmark program runs it (channels
last, eager and compiled). All are timed in turn in one process, so that a disturbance of the
machine meets each alike. `ratio` is the rate over that of the fastest peer.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ipubench.bench_inference.bench_cnn_torch import HOST
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.torch.engines import build_engine, default_engine
from ipubench.fixtures.runtimes.torch.openvino_guard import import_openvino
from ipubench.models.torch.architectures import ARCHITECTURES
from ipubench.plugins.record.statistics import median
from ipubench.plugins.record.text import duration, short_number
from ipubench.plugins.run.conditions import tune_allocator

Run = Callable[[], Any]

ENGINES = ("onednn", "compile", "openvino", "eager")


def main() -> int:
    """Print one table per network and batch size, then all of them in one."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--models", default="resnet50", help="configurations, or all")
    parser.add_argument("--batch-sizes", default="1,16")
    parser.add_argument("--engines", default=",".join(ENGINES), help="ours; auto is the default")
    parser.add_argument("--seconds", type=duration, default=20.0, help="of timing per table")
    parser.add_argument("--no-peers", action="store_true", help="compare our engines alone")
    options = parser.parse_args()
    tune_allocator()
    device = CpuDevice()
    device.attach()
    names = list(HOST) if options.models == "all" else options.models.split(",")
    lines = []
    for name in names:
        for batch_size in map(int, options.batch_sizes.split(",")):
            engines = options.engines.split(",")
            comparison = Comparison(device, HOST[name], batch_size, engines)
            lines.append(comparison.run(options.seconds, not options.no_peers))
            gc.collect()
    print("\nconfiguration, batch, our fastest, images/s, fastest peer, images/s, ratio")
    print("\n".join(lines))
    return 0


class Comparison:
    """One network at one batch size."""

    def __init__(
        self, device: CpuDevice, config: Classifier, batch_size: int, engines: List[str]
    ) -> None:
        import torch

        torch.set_num_threads(device.threads)
        self.threads = device.threads
        self.config = config
        self.batch_size = batch_size
        self.engines = engines
        self.dtype = torch.bfloat16 if device.fast_bfloat16 else torch.float32
        size = config.image_size
        self.images = torch.randint(0, 255, (batch_size, 3, size, size), dtype=torch.uint8)

    def run(self, seconds: float, with_peers: bool) -> str:
        """Time all in turn, print the table, return the summary line."""
        import torch

        # Else networks of one class count as recompilations, and after a few run uncompiled.
        torch._dynamo.reset()
        ours = self._ours()
        peers = self._peers() if with_peers else {}
        times = _alternate({**ours, **peers}, seconds)
        rates = {name: self.batch_size / median(values) for name, values in times.items()}
        fastest = max(peers or ours, key=lambda name: rates[name])
        print(
            f"\n{self.config.name}, batch {self.batch_size}, {self.dtype}, {self.threads} threads"
        )
        print(f"{'':28}{'images/s':>10}{'ratio':>8}{'rounds':>8}")
        for name, rate in rates.items():
            ratio = rate / rates[fastest]
            print(
                f"{name:28}{short_number(rate):>10}{ratio:>8.2f}{len(times[name]):>8}", flush=True
            )
        best = max(ours, key=lambda name: rates[name])
        return (
            f"{self.config.name}, {self.batch_size}, {best}, {short_number(rates[best])}, "
            f"{fastest}, {short_number(rates[fastest])}, {rates[best] / rates[fastest]:.2f}"
        )

    def _ours(self) -> Dict[str, Run]:
        network = self.config.network()()
        runs: Dict[str, Run] = {}
        for name in self.engines:
            try:
                built = build_engine(
                    name, network, tuple(self.images.shape), self.images.dtype, self.dtype,
                    self.images.device, normalise=True,
                )  # fmt: skip
            except CaseError as error:
                print(f"{name}: left out, {error}")
                continue
            mark = " (auto)" if built.name == default_engine("cpu") else ""
            runs[f"{built.name}{mark}"] = _call(built.run, self.images)
        return runs

    def _peers(self) -> Dict[str, Run]:
        import torch

        images = (self.images / 255).to(self.dtype, memory_format=torch.channels_last)
        torchvision, timm = _torchvision_network(self.config), _timm_network(self.config)
        runs: Dict[str, Run] = {}
        for library, network in (("torchvision", torchvision), ("timm", timm)):
            if network is None:
                continue
            cast = network.to(self.dtype, memory_format=torch.channels_last).eval()
            runs[f"{library} eager"] = _call(cast, images)
            runs[f"{library} torch.compile"] = _call(torch.compile(cast, dynamic=False), images)
        subject = torchvision or timm or self.config.network()()
        run = _openvino(subject, self.dtype, images)
        return {**runs, "OpenVINO, LATENCY": run} if run else runs


def _call(run: Callable[[Any], Any], images: Any) -> Run:
    return lambda: run(images)


def _torchvision_network(config: Classifier) -> Optional[Any]:
    """Return torchvision's network; None for the modified ones, which it does not have."""
    from ipubench.models.torch.torchvision_import import import_torchvision

    if config.norm_type != "batch":
        return None
    architecture = ARCHITECTURES[config.model]
    name = architecture.in_torchvision or architecture.variant
    return getattr(import_torchvision().models, name)(weights=None).eval()


def _timm_network(config: Classifier) -> Optional[Any]:
    name = ARCHITECTURES[config.model].in_timm
    if config.norm_type != "batch" or not name:
        return None
    from ipubench.models.torch.torchvision_import import import_torchvision

    import_torchvision()
    try:
        import timm
    except ImportError:
        return None
    return timm.create_model(name).eval()


def _openvino(network: Any, dtype: Any, images: Any) -> Optional[Run]:
    """Return OpenVINO as its own documentation has it: float input, precision by the hint."""
    import torch

    try:
        openvino = import_openvino()
    except ImportError:
        return None
    numbers = images.float().contiguous().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = openvino.convert_model(
            copy.deepcopy(network).float(),
            example_input=torch.from_numpy(numbers),
            input=list(numbers.shape),
        )
    precision = {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer([numbers], share_inputs=True, share_outputs=True)


def _alternate(runs: Dict[str, Run], seconds: float) -> Dict[str, List[float]]:
    import torch

    times: Dict[str, List[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for run in runs.values():
            for _ in range(3):
                run()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[next(iter(runs))]) < 5:
            for name, run in runs.items():
                run()  # the first call after another program finds its data out of the caches
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
