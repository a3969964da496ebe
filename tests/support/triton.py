"""A Triton runtime whose model starts in no time, for tests of everything around a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, Optional

import numpy as np

from ipubench.bench_inference.bench_triton import TritonClassifier
from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.servers.triton.classifiers import GivenRepository, ServedClassifier
from ipubench.fixtures.servers.triton.repository import ServedModel
from ipubench.fixtures.servers.triton.runtime import TritonRuntime
from ipubench.fixtures.servers.triton.triton_step import TritonStep

SIZE, BATCH = 8, 2
MODEL = Path(__file__).resolve().parents[1] / "doubles" / "tiny_model.py"


class TinyClassifier(ServedClassifier):
    """The model of tests/doubles/tiny_model.py."""

    backend = "python"
    precision = "float32"

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def model(self) -> ServedModel:
        return ServedModel(
            self.name,
            self.backend,
            max_batch_size=BATCH,
            input_dims=(3, SIZE, SIZE),
            output_type="FP32",
            output_dims=(4,),
            parameters={"folder": str(self.folder)},
            files={"model.py": MODEL},
        )

    def repository(self, scratch: Path) -> Path:
        self.model().write(scratch / "repository")
        return scratch / "repository"

    def facts(self, repository: Path) -> Dict[str, Any]:
        return {"engine": "tiny"}

    def logits(self, images: Any) -> Any:
        flat = images.reshape(len(images), -1).astype(np.float32)
        wrong = (self.folder / "other-weights").exists()
        scores = np.stack((flat.sum(1), flat.max(1), flat.min(1), flat[:, 0]), 1)
        return scores * (2 if wrong else 1)


class TinyRuntime(TritonRuntime):
    """Serves the tiny model; ``orders`` is the folder of files that make it fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(CpuDevice(), folder / "logs", tuned=True)
        self.orders = folder / "orders"
        self.orders.mkdir()
        self.given: Optional[GivenRepository] = None

    def make_classifier(
        self, network: Callable[[], Any], config: Any, feed: ImageFeed
    ) -> ServedClassifier:
        return self.given or TinyClassifier(config.name, self.orders)

    def step(self, **options: Any) -> TritonStep:
        """Return a built and compiled step."""
        given = {"name": "tiny", "data": "generated", "micro_batch_size": BATCH, **options}
        config = TritonClassifier(**given)
        step = self.inference(config.network(), config, ImageFeed("generated", BATCH, SIZE))
        try:
            step.build()
            self.fresh = step.compile()
        except BaseException:
            step.close()
            raise
        return step
