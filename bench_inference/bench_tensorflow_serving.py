"""A network in TensorFlow Serving: images per second of all clients, latency of a request.

The network is exported at its micro batch as a SavedModel. Client processes send requests of
request_batch_size images [N, H, W, C] over gRPC to a server on this machine, which returns
probabilities [N, classes]. A round is one run of the original program: all clients start together
and send num_images each, decoded before the timing. Cases: the original's example, and its
published benchmarks of throughput (asynchronous) and of latency.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict

from ipubench import bench_training
from ipubench.bench_inference.serving import UNUSED, Serving, default
from ipubench.fixtures.case.cases import NAMED, cases
from ipubench.fixtures.case.presets import HOW_RUN, load_presets

# The networks are those of the application.
PRESETS = Path(str(bench_training.__file__)).with_name("application.yml")


def configurations(group: str, clients: int, port: int) -> Dict[str, Serving]:
    """Return name -> case of the networks of a group of presets, with the original's requests.

    ``clients`` is the number for throughput; the example has twice as many.
    """
    networks = load_presets(PRESETS, group, Serving, refused=HOW_RUN)

    def asked(name: str, served: int, **requests: Any) -> Serving:
        network = networks[f"resnet50_infer_bs{served}"]
        # The presets also contain training options.
        unused = {item: default(item) for item in UNUSED}
        return dataclasses.replace(network, name=name, port=port, **{**unused, **requests})

    found = (
        asked("resnet50_infer_bs16", 16, request_batch_size=8, num_threads=2 * clients),
        asked("resnet50_infer_bs1-throughput", 1, num_threads=clients, use_async=True),
        asked(
            "resnet50_infer_bs32-throughput",
            32,
            request_batch_size=32,
            num_threads=clients,
            use_async=True,
        ),
        asked("resnet50_infer_bs1-latency", 1, num_threads=1, verbose=True),
    )
    return {config.name: config for config in found}


def for_few_cores(config: Serving) -> Serving:
    """Return a case with a round of some seconds, but at least eight requests per client."""
    return dataclasses.replace(config, num_images=max(32, 8 * config.request_batch_size))


IPU = configurations("ipu", clients=16, port=8502)
HOST = {name: for_few_cores(config) for name, config in configurations("host", 2, 0).items()}
USUAL = ("resnet50_infer_bs16", "resnet50_infer_bs1-latency")


@cases(*IPU.values())
@cases(
    *(config for name, config in HOST.items() if name not in USUAL),
    data=("generated", "real"),
    quick=(),
    tier=NAMED,
)
@cases(*(HOST[name] for name in USUAL), data=("real",), quick=(), tier=NAMED)
@cases(*(HOST[name] for name in USUAL), data=("generated",), quick=("resnet50_infer_bs1-latency",))
def bench_tensorflow_serving(config, tensorflow_serving, data, meter):
    feed = config.validation_feed(data)()
    step = tensorflow_serving.inference(config.classifier(), config, feed)
    meter(step, items=config.request_batch_size, unit="images")
