"""A small network behind TensorFlow Serving, for tests of servers."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from ipubench.bench_inference.bench_tensorflow_serving import HOST
from ipubench.bench_inference.serving import Serving
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime
from ipubench.fixtures.servers.tensorflow_serving.serving_step import ServingStep
from tests.support.harness import ROOT

BATCH, ROWS = 4, 2
#: The documented example with another network: requests of half a batch.
SMALL = dataclasses.replace(
    HOST["resnet50_infer_bs16"],
    name="small",
    data="generated",
    model_name="toy_model_bn",
    dataset="cifar10",
    fused_preprocessing=False,
    micro_batch_size=BATCH,
    request_batch_size=ROWS,
    num_images=6,
    num_threads=2,
    num_batch_threads=4,
)
# Takes the arguments of tensorflow_model_server, records them and responds like it.
PROGRAM = f"""#!{sys.executable}
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
if "--version" in sys.argv:
    print("TensorFlow ModelServer: 2.6.0")
    sys.exit()
Path(__file__).with_suffix(".words").write_text("\\n".join(sys.argv[1:]))
from ipubench.fixtures.servers.tensorflow_serving.prediction_service import main
main()
"""


def program(folder: Path) -> Path:
    """Return a program that replaces the real server and records how it was started."""
    path = folder / "tensorflow_model_server"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


def feed(config: Serving, mode: str = "generated") -> ApplicationFeed:
    """Return the feed that the fixture ``data`` would return."""
    return ApplicationFeed(
        mode,
        config.micro_batch_size,
        config.published.image_shape,
        config.published.classes,
        dataset=config.dataset,
        total=config.published.validation_images,
        eight_bit=config.eight_bit_transfer,
        training=False,
        device_preprocess=config.accelerator_side_preprocess,
        fused=config.fused_preprocessing,
    )


class SmallRuntime(ServingRuntime):
    """Serves the small network."""

    fresh = False

    def __init__(self, folder: Path, program: Path) -> None:
        """Use the server's ``program``, and write logs to ``folder``."""
        device = CpuDevice()
        self.program = program
        super().__init__(TensorFlowHost(device), device, folder / "logs", tuned=True)

    def step(self, **options: Any) -> ServingStep:
        """Return a built and compiled step."""
        config = dataclasses.replace(SMALL, serving_bin_path=str(self.program), **options)
        config.check()
        step = self.inference(config.classifier(), config, feed(config))
        try:
            step.build()
            self.fresh = step.compile()
        except BaseException:
            step.close()
            raise
        return step
