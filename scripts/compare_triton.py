"""Compare the serving benchmark with an independent client of the same server.

    python -m scripts.compare_triton --model=resnet50 --clients=1,4,8

The other client is a loop of its own on the plain gRPC stub: threads instead of processes, no code
of fixtures/servers/clients.py. Both send the same number of requests at the same concurrency, and
take turns against one server, so that a disturbance of the machine meets each alike. The table
gives the median rate of each and the median ratio of neighbours.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ipubench.bench_inference.bench_triton import HOST, TritonClassifier
from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.torch.engines import default_engine
from ipubench.fixtures.servers.triton.repository import INPUT, OUTPUT
from ipubench.fixtures.servers.triton.runtime import TritonRuntime
from ipubench.plugins.record.statistics import median
from ipubench.plugins.record.text import short_number
from ipubench.plugins.run.conditions import tune_allocator

WARM_UP = 2


def main() -> int:
    """Print one line for each way of asking and each number of clients."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="resnet50", choices=HOST)
    parser.add_argument("--clients", default="1,4,8")
    parser.add_argument("--engine", default=default_engine("cpu"), help="of the served network")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    tune_allocator()
    device = CpuDevice()
    device.attach()
    preset = dataclasses.replace(HOST[options.model], engine=options.engine)
    runtime = TritonRuntime(device, Path(tempfile.gettempdir()) / "ipubench-logs", tuned=True)
    print(f"{preset.name}, {preset.engine}, {preset.micro_batch_size} images a request")
    print(f"{'requests':10}{'clients':>8}{'ours':>10}{'other':>10}{'ours/other':>12}")
    try:
        for request_type in ("sync", "async"):
            for clients in map(int, options.clients.split(",")):
                config = dataclasses.replace(
                    preset, request_type=request_type, clients=clients, data="generated"
                )
                ours, other = compare(runtime, config, options.rounds)
                ratio = median([b / a for a, b in zip(ours, other)])
                images = config.batches_per_step * config.micro_batch_size
                rates = [short_number(images / median(seconds)) for seconds in (ours, other)]
                print(
                    f"{request_type:10}{clients:>8}{rates[0]:>10}{rates[1]:>10}{ratio:>12.3f}",
                    flush=True,
                )
    finally:
        runtime.close()
    return 0


def compare(
    runtime: TritonRuntime, config: TritonClassifier, rounds: int
) -> Tuple[List[float], List[float]]:
    """Return the seconds of each round, ours and the other's, alternating."""
    feed = ImageFeed(config.data, config.micro_batch_size, config.image_size)
    step = runtime.inference(config.network(), config, feed)
    try:
        step.build()
        step.compile()
        with Other(runtime.server.address, config, feed.generated()) as other:
            seconds: Tuple[List[float], List[float]] = ([], [])
            for number in range(WARM_UP + rounds):
                # The first of a pair finds the machine as the last of the pair before left it.
                turns: List[Tuple[int, Callable[[], None]]] = [(0, step), (1, other)]
                for side, run in turns if number % 2 else turns[::-1]:
                    spent = timed(run)
                    if number >= WARM_UP:
                        seconds[side].append(spent)
            return seconds
    finally:
        step.close()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Other:
    """The independent client: one thread and one channel for each client of the case."""

    def __init__(self, address: str, config: TritonClassifier, images: Any) -> None:
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc

        self._each = config.batches_per_step // config.clients
        self._asynchronous = config.request_type == "async"
        # Channels of equal arguments would share one connection.
        self._channels = [
            grpc.insecure_channel(
                address,
                [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1),
                 ("grpc.max_send_message_length", -1)],
            )
            for _ in range(config.clients)
        ]  # fmt: skip
        self._calls = [
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
            for channel in self._channels
        ]
        self._request = service_pb2.ModelInferRequest(model_name=config.name)
        tensor = self._request.inputs.add(name=INPUT, datatype="UINT8")
        tensor.shape.extend(images.shape)
        self._request.outputs.add(name=OUTPUT)
        self._request.raw_input_contents.append(images.tobytes())
        self._pool = ThreadPoolExecutor(config.clients)

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        for channel in self._channels:
            channel.close()

    def __call__(self) -> None:
        """Send all requests of a round and return when all are answered."""
        list(self._pool.map(self._together if self._asynchronous else self._in_turn, self._calls))

    def _in_turn(self, call: Any) -> None:
        for _ in range(self._each):
            call(self._request)

    def _together(self, call: Any) -> None:
        for answer in [call.future(self._request) for _ in range(self._each)]:
            answer.result()


if __name__ == "__main__":
    sys.exit(main())
