"""Image classification inference with PyTorch: images per second through one network.

The network takes a batch of images [micro_batch_size, 3, image_size, image_size] and returns
logits [micro_batch_size, 1000]. Images travel as uint8 and are normalised on the device, as in
the original program's configurations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Tuple

from fixtures.config import CaseConfig, Sweep, cases, option
from fixtures.presets import load_presets
from models.torch.classification import ARCHITECTURES, build_classifier


@dataclass(frozen=True)
class Classifier(CaseConfig):
    """One network at one batch size."""

    model: str = option("resnet50", "network", choices=tuple(ARCHITECTURES))
    micro_batch_size: int = option(1, "images per device step and replica", minimum=1)
    batches_per_step: int = option(1, "device steps per host call", minimum=1)
    steps: int = option(100, "timed host calls; a stop rule decides unless given", minimum=1)
    data: str = option("real", "synthetic, generated or real images")
    engine: str = option(
        "auto",
        "how a host runs the network; auto takes the fastest measured for the device",
        choices=("auto", "onednn", "compile", "eager", "openvino"),
    )
    random_weights: bool = option(False, "seeded random weights instead of pretrained ones")
    weights: str = option("", "path of a state dictionary to load")
    half_partial: bool = option(False, "accumulate partial results in float16", ipu_only=True)
    norm_type: str = option("batch", "normalisation layer", choices=("batch",))
    eight_bit_io: bool = option(False, "images travel as uint8 and are normalised on the device")
    normalization_location: str = option(
        "host", "where images are normalised", choices=("host", "device", "ipu", "none")
    )
    dataloader_worker: int = option(0, "loader processes; 0 = one per core, at most 32", minimum=0)
    pipeline_splits: Tuple[str, ...] = option(
        (), "layers that start the next stage, as in layer1/0/conv1", ipu_only=True
    )

    @property
    def image_size(self) -> int:
        """Height and width of the network's input in pixels."""
        return ARCHITECTURES[self.model].image_size


PRESETS = Path(__file__).with_name("configs.yml")
HOST = load_presets(PRESETS, "host", Classifier)
IPU = load_presets(PRESETS, "ipu", Classifier)
DATA = ("synthetic", "generated", "real")


@cases(
    HOST["resnet18"],
    Sweep(HOST["resnet50"], "micro_batch_size", (1, 4, 8, 16)),
    data=DATA,
)
@cases(*IPU.values(), data=DATA)
def bench_cnn_torch(config, pytorch, data, meter):
    network = partial(
        build_classifier,
        config.model,
        random_weights=config.random_weights,
        weights=config.weights,
    )
    step = pytorch.inference(network, config, data.images(config))
    meter(step, items=config.micro_batch_size * config.replicas, unit="images")
