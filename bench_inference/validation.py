"""The options of validating an image classifier in TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.bench_training.classifier import Classifier
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.runtimes.tensorflow.cnn_options import ValidationOptions
from ipubench.fixtures.runtimes.tensorflow.ipu.pipelines import micro_batches_at_once

VALIDATION_IMAGES = 50000  # of ImageNet


@dataclass(frozen=True)
class Validation(ValidationOptions, Classifier):
    """One classifier; each batch is compared with its labels."""

    mode: str = option("inference", "what the case does", choices=("inference",))
    batches_per_step: int = option(
        1000, "most batches per host call on an IPU; a host calibrates", minimum=1
    )

    @property
    def batches_per_call(self) -> int:
        """Batches of one host call in the original: an equal part of a pass over ImageNet.

        A pipeline rounds it down to a multiple of what its schedule needs.
        """
        images = self.micro_batch_size * self.shards * max(1, self.replicas)
        batches = max(1, VALIDATION_IMAGES // images)
        if batches > self.batches_per_step:
            batches //= round(batches / self.batches_per_step)
        if not self.pipeline_splits:
            return batches
        least = micro_batches_at_once(self.pipeline_schedule, range(self.shards), training=False)
        return max(least, batches - batches % least)

    def feed(self, data: Data) -> ImageNetFeed:
        """Return the case's images."""
        return data.records(self, self.micro_batch_size, self.pixels)
