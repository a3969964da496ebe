"""The options of training an image classifier in TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.bench_training.recipe import RecipeOptions
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.imagenet.feed import ImageNetFeed
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.runtimes.tensorflow.cnn_options import TrainingOptions
from ipubench.fixtures.runtimes.tensorflow.ipu.pipelines import check_training


@dataclass(frozen=True)
class Training(TrainingOptions, RecipeOptions):
    """One training configuration. An update is what the original calls a weight update."""

    mode: str = option("training", "what the case does", choices=("training",))
    data: str = option("real", "synthetic, generated or real images")
    batches_per_step: int = option(
        1000, "most weight updates per host call on an IPU; a host calibrates", minimum=1
    )

    @property
    def updates_per_call(self) -> int:
        """Weight updates of one host call in the original: about one logging interval."""
        interval = max(1, self.updates_per_epoch // self.logs_per_epoch)
        calls = max(1, round(interval / self.batches_per_step))
        return interval if interval < self.batches_per_step else interval // calls

    def feed(self, data: Data) -> ImageNetFeed:
        """Return the case's images."""
        augmented = not self.train_with_valid_preprocessing
        return data.records(self, self.micro_batch_size, self.pixels, augmented)

    def check(self) -> None:
        """Raise ValueError for invalid values, and for several instances on a host."""
        super().check()
        if self.system == "host" and self.instances > 1:
            raise ValueError(
                f"instances={self.instances}: joint training of instances needs IPUs, which "
                "exchange their gradients"
            )
        if self.system != "host" and self.pipeline_splits:
            stages, count = range(self.shards), self.gradient_accumulation_count
            check_training(self.pipeline_schedule, stages, count)
