"""Image classification inference with PyTorch: images per second through one network.

images [micro_batch_size, 3, image_size, image_size] -> logits [micro_batch_size, 1000]. As in the
original program's configurations, images are transferred as uint8 and normalised on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipubench.bench_inference.classifier import Classifier
from ipubench.bench_inference.direct import DirectLoad
from ipubench.fixtures.case.cases import NAMED, cases
from ipubench.fixtures.case.presets import load_presets


@dataclass(frozen=True)
class Direct(Classifier, DirectLoad):
    """One network, run in this process."""


PRESETS = Path(__file__).with_name("configs.yml")
HOST = load_presets(PRESETS, "host", Direct, refused=("data",))
OPENVINO = load_presets(PRESETS, "openvino", Direct, refused=("data",))
IPU = load_presets(PRESETS, "ipu", Direct, refused=("data",))
IPU_OTHERS = load_presets(PRESETS, "ipu_others", Direct, refused=("data",))
POD4 = load_presets(PRESETS, "pod4", Direct)
DATA = ("synthetic", "generated", "real")


@cases(*OPENVINO.entries, data=("synthetic",))
# On a CPU, generated images take as long as synthetic ones. A real batch of 16 shows the time of
# decoding.
@cases(*HOST.entries, data=DATA, rare_on_cpu=("generated",), sweep_on_cpu=("bs1-real",))
@cases(*IPU.entries, data=DATA)
@cases(*IPU_OTHERS.entries, data=DATA, tier=NAMED)
@cases(*POD4.entries)
def bench_cnn_torch(config, pytorch, data, instances, under_load, meter):
    step = instances(pytorch.inference(config.network(), config, config.feed(data)))
    meter(under_load(step), items=config.micro_batch_size * config.replicas, unit="images")
