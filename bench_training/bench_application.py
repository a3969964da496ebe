"""The TensorFlow 2 image classification application: images per second of training and validation.

images [micro_batch_size, H, W, C] and their labels -> weight updates in device calls, with the
host's log lines and checkpoints between them. One batch of the meter is one weight update. A
configuration with training=false measures validation. The presets of the original program are the
cases of ipu, pod4 and pod16, each with a variant for a host; toy_model has the defaults of its
command line.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.distributed import poprun_job, under_poprun
from ipubench.bench_training.application.rules import settled
from ipubench.fixtures.case.cases import NAMED, Sweep, cases
from ipubench.fixtures.case.presets import HOW_RUN, load_presets

PRESETS = Path(__file__).with_name("application.yml")
IPU = load_presets(PRESETS, "ipu", Application, refused=HOW_RUN)
POD4 = load_presets(PRESETS, "pod4", Application, refused=HOW_RUN)
POD16 = load_presets(PRESETS, "pod16", Application, refused=HOW_RUN)
HOST = load_presets(PRESETS, "host", Application, refused=(*HOW_RUN, "data"))
LOGS = load_presets(PRESETS, "logs", Application, refused=(*HOW_RUN, "data", "logs_per_epoch"))
EVENTS = load_presets(PRESETS, "events", Application, refused=HOW_RUN)
BARE = load_presets(PRESETS, "bare", Application, refused=HOW_RUN)
BARE_HOST = load_presets(PRESETS, "bare_host", Application, refused=(*HOW_RUN, "data"))
ALL_MODES = ("synthetic", "generated", "real")
LARGE = ("resnet50_16ipus_8k_bn_pipeline", "resnet50_infer_bs16")
USUAL = ("resnet8_test", *LARGE)
EACH_32_4_1_UPDATES = (Fraction(1), Fraction(8), Fraction(32))


# Of two cases with one identifier the first counts, and pytest reads these from the last line up.
# So --data=real turns a usual case into a real one, and does not exclude it.
@cases(*IPU.values(), *POD4.values(), *POD16.values())
@cases(*BARE.values(), *EVENTS.values(), tier=NAMED)
@cases(*BARE_HOST.values(), data=ALL_MODES, quick=(), tier=NAMED)
@cases(
    *(config for name, config in HOST.items() if name not in USUAL),
    data=ALL_MODES,
    quick=(),
    tier=NAMED,
)
@cases(*(HOST[name] for name in LARGE), data=("generated", "real"), quick=(), tier=NAMED)
@cases(*(HOST[name] for name in LARGE), data=("synthetic",), quick=())
@cases(
    Sweep(LOGS["resnet8_test"], "logs_per_epoch", EACH_32_4_1_UPDATES, EACH_32_4_1_UPDATES),
    data=("synthetic",),
    quick=(),
)
@cases(HOST["resnet8_test"], data=ALL_MODES, quick=("resnet8_test",))
def bench_application(config, tensorflow, data, instances, meter):
    config = settled(under_poprun(config, poprun_job()))
    feed, validation_feed = config.feed(data), config.validation_feed(data)
    step = instances(tensorflow.application(config.classifier(), config, feed, validation_feed))
    meter(step, items=config.images_per_batch, unit="images")
