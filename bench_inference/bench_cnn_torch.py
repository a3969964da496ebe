"""Image classification inference with PyTorch: images per second through one network.

images [micro_batch_size, 3, image_size, image_size] -> logits [micro_batch_size, 1000]. As in the
original program's configurations, images are transferred as uint8 and normalised on the device.
"""

from __future__ import annotations

from pathlib import Path

from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.case.cases import NAMED, cases
from ipubench.fixtures.case.presets import load_presets

PRESETS = Path(__file__).with_name("configs.yml")
HOST = load_presets(PRESETS, "host", Classifier, refused=("data",))
OPENVINO = load_presets(PRESETS, "openvino", Classifier, refused=("data",))
IPU = load_presets(PRESETS, "ipu", Classifier, refused=("data",))
IPU_OTHERS = load_presets(PRESETS, "ipu_others", Classifier, refused=("data",))
POD4 = load_presets(PRESETS, "pod4", Classifier)
DATA = ("synthetic", "generated", "real")


@cases(*OPENVINO.entries, data=("synthetic",))
# On a CPU, generated images take as long as synthetic ones. A real batch of 16 shows the time of
# decoding.
@cases(*HOST.entries, data=DATA, rare_on_cpu=("generated",), sweep_on_cpu=("bs1-real",))
@cases(*IPU.entries, data=DATA)
@cases(*IPU_OTHERS.entries, data=DATA, tier=NAMED)
@cases(*POD4.entries)
def bench_cnn_torch(config, pytorch, data, instances, meter):
    step = instances(pytorch.inference(config.network(), config, config.feed(data)))
    meter(step, items=config.micro_batch_size * config.replicas, unit="images")
