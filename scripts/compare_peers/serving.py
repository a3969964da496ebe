"""The serving benchmark compared with an independent client of the same server.

The other client is a loop on the plain gRPC stub. It uses threads instead of processes and no code
of fixtures/servers/clients.py. Both send the same number of one-image requests at the same
concurrency to one server.
"""

from __future__ import annotations

import dataclasses
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, List

from ipubench.bench_inference.bench_triton import HOST, TritonClassifier
from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.servers.triton.repository import INPUT, OUTPUT
from ipubench.fixtures.servers.triton.runtime import TritonRuntime
from scripts.compare_peers.case import Case, Conditions, Family, Program, repeated

CLIENTS = (1, 4, 8)
WAYS = ("sync", "async")


class Serving(Family):
    """Every host configuration of the server's networks, with each kind of client."""

    title = "Serving"
    unit = "images/s"
    usual = ("resnet50-sync-4-clients", "resnet50-async-4-clients")

    @classmethod
    def names(cls) -> List[str]:
        return [f"{name}-{way}-{n}-clients" for name in HOST for way in WAYS for n in CLIENTS]

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(conditions)
        logs = Path(tempfile.gettempdir()) / "ipubench-logs"
        self.runtime = TritonRuntime(conditions.device, logs, tuned=True)

    def open(self, name: str) -> Case:
        network, way, clients, _ = name.rsplit("-", 3)
        config = dataclasses.replace(
            HOST[network], request_type=way, clients=int(clients), data="generated",
            precision=self.conditions.precision,
        )  # fmt: skip
        opened = _Opened(self.runtime, config)
        items = float(config.batches_per_step * config.micro_batch_size)
        peers = {"plain gRPC client": opened.other}
        return Case(items, self.conditions.dtype, opened.ours, peers, close=opened.close)

    def close(self) -> None:
        """End the server."""
        self.runtime.close()


class _Opened:
    """One case; a batch is a round of requests."""

    def __init__(self, runtime: TritonRuntime, config: TritonClassifier) -> None:
        self._runtime = runtime
        self._config = config
        self._feed = ImageFeed(config.data, config.micro_batch_size, config.image_size)
        self._step = runtime.inference(config.network(), config, self._feed)
        self._others: List[Other] = []

    def ours(self) -> Program:
        """Return the benchmark's own clients; the server has already loaded the network."""
        self._step.build()
        self._step.compile()
        return repeated(self._step)

    def other(self) -> Program:
        """Return the independent client."""
        address = self._runtime.server.address
        self._others.append(Other(address, self._config, self._feed.generated()))
        return repeated(self._others[-1])

    def close(self) -> None:
        """Unload the case from the server."""
        for other in self._others:
            other.close()
        self._step.close()


class Other:
    """The independent client, with one thread and one channel for each client of the case."""

    def __init__(self, address: str, config: TritonClassifier, images: Any) -> None:
        import grpc
        from tritonclient.grpc import service_pb2_grpc

        self._each = config.batches_per_step // config.clients
        self._asynchronous = config.request_type == "async"
        # Channels with equal arguments would share one connection.
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
        self._request = infer_request(config.name, images)
        self._pool = ThreadPoolExecutor(config.clients)

    def close(self) -> None:
        """End its threads and connections."""
        self._pool.shutdown()
        for channel in self._channels:
            channel.close()

    def __call__(self) -> None:
        """Send all requests of a round and wait for the responses."""
        list(self._pool.map(self._together if self._asynchronous else self._in_turn, self._calls))

    def _in_turn(self, call: Any) -> None:
        for _ in range(self._each):
            call(self._request)

    def _together(self, call: Any) -> None:
        for answer in [call.future(self._request) for _ in range(self._each)]:
            answer.result()


def infer_request(model: str, images: Any) -> Any:
    """Return the gRPC message that asks a model for the classes of ``images``."""
    from tritonclient.grpc import service_pb2

    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name=INPUT, datatype="UINT8")
    tensor.shape.extend(images.shape)
    request.outputs.add(name=OUTPUT)
    request.raw_input_contents.append(images.tobytes())
    return request
