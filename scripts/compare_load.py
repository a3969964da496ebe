"""Latency of a real Triton server under load, by three clients in turn.

    python -m scripts.compare_load [--model=resnet50] [--shares=0.4,0.8] [--queries=1000]
        [--repetitions=3] [--perf-analyzer=PATH]

First a closed loop of one client says how many images a second there can be. Then random arrivals
(Poisson) at shares of that, sent by MLPerf's LoadGen in the suite's client, by a client written
independently, and, where its path is given, by NVIDIA's perf_analyzer, whose latencies count from
when it sent a request. One image a request, generated. Each line is the median of the repetitions.

perf_analyzer is part of tritonclient's wheels up to 2.41 (bin/perf_analyzer), and needs libb64 and
CUDA's libcudart.so.12 (nvidia-cuda-runtime-cu12) in LD_LIBRARY_PATH.
"""

from __future__ import annotations

import csv
import dataclasses
import statistics
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List

from ipubench.bench_inference.bench_triton import HOST
from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.servers.load import SERVER, Load
from ipubench.fixtures.servers.triton.runtime import TritonRuntime
from ipubench.plugins.record.text import Parser
from scripts.compare_arrivals import independent
from scripts.markdown_table import markdown_row, markdown_table
from scripts.triton_request import infer_request

SHOWN = ("p50", "p90", "p99")
#: Requests of the closed loop that are not counted, and those that are.
WARM_UP, CLOSED = 32, 128

Percentiles = Dict[str, float]


class Independent:
    """Sends requests at exponential intervals over the plain gRPC stub."""

    def __init__(self, address: str, model: str, images: Any) -> None:
        import grpc
        from tritonclient.grpc import service_pb2_grpc

        self._channel = grpc.insecure_channel(address)
        self._call = service_pb2_grpc.GRPCInferenceServiceStub(self._channel).ModelInfer
        self._request = infer_request(model, images)

    def __call__(self, rate: float, queries: int, seed: int) -> Percentiles:
        """Return the percentiles of the latencies; raises RpcError for a request that failed."""
        answers: List[Any] = []

        def ask(done: Callable[[], None]) -> None:
            answers.append(self._call.future(self._request))
            answers[-1].add_done_callback(lambda answer: done())

        found = independent(ask, rate, queries, seed)
        for answer in answers:
            answer.result()
        return found

    def close(self) -> None:
        """End its connection."""
        self._channel.close()


def perf_analyzer(
    program: str, address: str, model: str, rate: float, queries: int, seed: int
) -> Percentiles:
    """Return the percentiles that perf_analyzer says, in seconds. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.csv"
        command = [program, "-m", model, "-u", address, "-i", "grpc", "-b", "1", "-f", str(report)]
        command += ["--request-distribution", "poisson", "--request-rate-range", f"{rate}"]
        command += ["--measurement-mode", "count_windows", "--percentile", "99"]
        # It takes three windows together, where their means differ by less than so many percent.
        command += ["--measurement-request-count", str(-(-queries // 3)), "--max-trials", "3"]
        command += ["--stability-percentage", "999"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with report.open(encoding="utf-8", newline="") as file:
            (row,) = csv.DictReader(file)
    return {name: float(row[f"{name} latency"]) / 1e6 for name in SHOWN}


def main() -> None:
    """Measure and print the table."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="resnet50", choices=sorted(HOST))
    parser.add_argument("--shares", default="0.4,0.8")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--perf-analyzer", default=None)
    options = parser.parse_args()
    config = dataclasses.replace(HOST[options.model], data="generated", clients=1)
    logs = Path(tempfile.mkdtemp(prefix="ipubench-load-"))
    device = CpuDevice()
    device.info = device.attach()
    runtime = TritonRuntime(device, logs, tuned=True)
    feed = ImageFeed(config.data, config.micro_batch_size, config.image_size)
    step = runtime.inference(config.network(), config, feed)
    try:
        step.build()
        step.compile()
        clients = step.clients
        assert clients is not None
        clients.run(WARM_UP, 0.0)
        ((start, end),) = clients.run(CLOSED, 0.0)
        closed = CLOSED / (end - start)
        print(f"closed loop of one client: {closed:.1f} images/s\n")
        address = runtime.server.address
        other = Independent(address, config.name, feed.generated())

        def loadgen(rate: float, queries: int, seed: int) -> Percentiles:
            load = Load(SERVER, queries, target_qps=rate, logs=str(logs), seed=seed)
            return clients.load(load).percentiles

        programs: Dict[str, Callable[[float, int, int], Percentiles]] = {
            "LoadGen": loadgen,
            "independent client": other,
        }
        if options.perf_analyzer:
            programs["perf_analyzer"] = partial(
                perf_analyzer, options.perf_analyzer, address, config.name
            )
        print(markdown_table(["load", "client", *(f"{name} ms" for name in SHOWN)], []))
        for share in map(float, options.shares.split(",")):
            found: Dict[str, List[Percentiles]] = {name: [] for name in programs}
            for seed in range(1, options.repetitions + 1):
                for name, program in programs.items():
                    found[name].append(program(share * closed, options.queries, seed))
            for name, runs in found.items():
                cells = [1000 * statistics.median(run[p] for run in runs) for p in SHOWN]
                load = f"{share:.0%}, {share * closed:.1f}/s"
                print(markdown_row([load, name, *(f"{cell:.1f}" for cell in cells)]))
        other.close()
    finally:
        step.close()
        runtime.close()


if __name__ == "__main__":
    main()
