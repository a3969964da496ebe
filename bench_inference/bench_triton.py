"""Image classification in a Triton Inference Server: images per second of all clients.

Client processes send requests over gRPC to a server on this machine. A request is one micro batch
of images, uint8 [micro_batch_size, 3, image_size, image_size], decoded before the timing. The
server normalises them and returns logits [micro_batch_size, 1000]. ``sync`` clients wait for each
response, ``async`` clients send all their requests of a round at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict

from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.options import option
from ipubench.fixtures.case.presets import load_presets
from ipubench.fixtures.servers.server_options import COMPILE_ONLY, TritonOptions

#: Options of the suite's own network and its program.
OF_THE_NETWORK = (
    *("random_weights", "weights", "engine", "input_image_padding"),
    *("norm_type", "norm_num_groups", "norm_eps", "enable_fast_groupnorm"),
    *("efficientnet_expand_ratio", "efficientnet_group_dim"),
    *("half_partial", "pipeline_splits", "exchange_memory_target", "exchange_prefetch"),
    *("num_io_tiles", "io_overlap", "popef_iterations"),
)


@dataclass(frozen=True)
class TritonClassifier(TritonOptions, Classifier):
    """One network in a server, with a number of clients and a way to send requests."""

    # Not calibrated: the number of waiting requests must not depend on a machine's speed.
    calibrated = False

    micro_batch_size: int = option(1, "images of a request", minimum=1)
    batches_per_step: int = option(32, "requests of all clients in a round", minimum=1)
    data: str = option("real", "generated or real images", choices=("generated", "real"))
    eight_bit_io: bool = option(True, "requests carry uint8 images")
    normalization_location: str = option("device", "in the server", choices=("device", "ipu"))

    def idle(self) -> Dict[str, str]:
        """Return unused options: a given repository has its network; images are decoded early."""
        idle = super().idle()
        idle["dataloader_rebatch_size"] = "the images of requests are decoded one by one"
        if self.model_repository and (self.benchmark_only or self.system != "host"):
            idle.update(dict.fromkeys(OF_THE_NETWORK, "the network is that of model_repository"))
        return idle

    def check(self) -> None:
        """Raise ValueError for what a server cannot do."""
        if self.compile_only and self.system != "host":
            raise ValueError(COMPILE_ONLY)
        if self.instances != 1:
            raise ValueError(
                f"instances={self.instances}: one server serves all clients; set clients"
            )
        super().check()
        self.check_load(self.clients, self.request_type == "sync")
        self.check_batching()
        if self.batches_per_step % self.clients:
            raise ValueError(
                f"batches_per_step={self.batches_per_step}: each of {self.clients} clients "
                f"sends the same number of requests; give a multiple of {self.clients}"
            )
        if not self.eight_bit_io:
            raise ValueError("eight_bit_io: requests always carry uint8 images")
        if self.replicas != 1:
            raise ValueError(f"replicas={self.replicas}: a served executable has one replica")
        if self.model_cache_path:
            raise ValueError("model_cache_path: the server keeps no compiled models")
        if self.grpc_port > 65535:
            raise ValueError(f"grpc_port={self.grpc_port}: ports end at 65535")


PRESETS = Path(__file__).with_name("triton.yml")
# One server, with one batch size, serves several numbers of clients in both ways.
DECIDED = ("clients", "request_type", "batch_sizes", "sweep_batch_sizes")
HOST = load_presets(PRESETS, "host", TritonClassifier, refused=DECIDED)
OPENVINO = load_presets(PRESETS, "openvino", TritonClassifier, refused=DECIDED)
IPU = load_presets(PRESETS, "ipu", TritonClassifier, refused=DECIDED)
CLIENTS = (1, 4, 8)
REQUEST_TYPES = ("sync", "async")


# A usual run on a CPU: one synchronous client, and four asynchronous ones. Eight, more than the
# cores, only wait longer.
INNER = ("clients1-async-real", "clients4-sync-real")


@cases(*OPENVINO.at("clients", CLIENTS, usual=(4,)), request_type=REQUEST_TYPES, sweep_on_cpu=INNER)
@cases(*HOST.at("clients", CLIENTS, usual=(1, 4)), request_type=REQUEST_TYPES, sweep_on_cpu=INNER)
@cases(*IPU.at("clients", CLIENTS, usual=CLIENTS), request_type=REQUEST_TYPES)
def bench_triton(config, triton, data, meter):
    step = triton.inference(config.network(), config, config.feed(data))
    meter(step, items=config.micro_batch_size, unit="images")
