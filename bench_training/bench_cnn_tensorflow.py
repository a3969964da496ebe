"""Image classification training with TensorFlow: images per second through weight updates.

images [micro_batch_size, S, S, 3] and their labels -> loss, gradients of the mean over
gradient_accumulation_count micro batches and all replicas, new weights. One batch of the meter is
one weight update. The command lines of the published tables are the cases of m2000 and pod16.
"""

from __future__ import annotations

from pathlib import Path

from ipubench.bench_training.training import Training
from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.presets import load_presets

PRESETS = Path(__file__).with_name("configs.yml")
HOST = load_presets(PRESETS, "host", Training, refused=("data",))
M2000 = load_presets(PRESETS, "m2000", Training)
POD16 = load_presets(PRESETS, "pod16", Training)


# A CPU trains so slowly that loading hardly matters.
@cases(*HOST.entries, data=("synthetic", "generated", "real"), rare_on_cpu=("generated", "real"))
@cases(*M2000.entries, *POD16.entries)
def bench_cnn_tensorflow(config, tensorflow, data, instances, meter):
    step = instances(tensorflow.training(config.classifier(), config, config.feed(data)))
    meter(step, items=config.global_batch_size, unit="images")
