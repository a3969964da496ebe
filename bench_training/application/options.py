"""One configuration of the application, and what its options stand for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Tuple

from ipubench.bench_training.application import rules
from ipubench.bench_training.application.datasets import DATASETS, Dataset
from ipubench.bench_training.application.fields import ApplicationOptions
from ipubench.bench_training.application.ipu import IpuOptions
from ipubench.bench_training.application.recipe import recipe_of
from ipubench.fixtures.case.options import IPUS_OF_SYSTEM
from ipubench.fixtures.schedule.batches import Batches
from ipubench.fixtures.schedule.program import Program
from ipubench.models.tensorflow.cnn.named import NamedNetwork, build_named
from ipubench.models.tensorflow.training.application import ApplicationRecipe


@dataclass(frozen=True)
class Application(ApplicationOptions):
    """One training or validation of the application."""

    def __post_init__(self) -> None:
        # Not an option of its own: what is measured follows from the phases that run.
        object.__setattr__(self, "mode", "training" if self.training else "inference")

    # ------------------------------------------------------------------ the data

    @property
    def image_shape(self) -> Tuple[int, int, int]:
        """(height, width, channels) of the images that the network receives."""
        return self._dataset.image_shape

    @property
    def classes(self) -> int:
        """Classes of the data set."""
        return self._dataset.classes

    @property
    def train_images(self) -> int:
        """Images of the data set's training split."""
        return self._dataset.train_images

    @property
    def validation_images(self) -> int:
        """Images of the data set's validation split."""
        return self._dataset.validation_images

    @property
    def _dataset(self) -> Dataset:
        return DATASETS[self.dataset]

    # ------------------------------------------------------------------ batches and calls

    @property
    def batches(self) -> Batches:
        """How images make a weight update. Raises ValueError for a contradiction."""
        count, whole = self.gradient_accumulation_count, self.global_batch_size
        if not count and not whole:
            count = 1
        return Batches.of(self.micro_batch_size, self.replicas, count or None, whole or None)

    @property
    def validation_batches(self) -> Batches:
        """How images are validated: of a pipelined model two micro batches for each stage.

        A host has neither a pipeline nor IPUs that could hold further copies.
        """
        size = self.validation_micro_batch_size or self.micro_batch_size
        if self.system == "host":
            return Batches.of(size, self.replicas, 1)
        copies = self.replicas * self.shards // self.validation_shards
        count = 2 * self.stages if self.pipelines_validation else 1
        return Batches.of(size, self.validation_num_replicas or copies, count)

    @property
    def program(self) -> Program:
        """The weight updates, and when logs and checkpoints happen. Raises ValueError."""
        given = self.weight_updates_per_epoch
        return Program.of(
            self.batches.updates_per_epoch(self.train_images) if given < 0 else given,
            self.num_epochs,
            self.logs_per_epoch,
            self.ckpts_per_epoch,
            self.first_ckpt_epoch,
            self.batches_per_step,
        )

    @property
    def updates_per_call(self) -> int:
        """Weight updates of one device call."""
        return self.program.updates_per_call

    @property
    def images_per_batch(self) -> int:
        """Images of what one batch of the meter is: a weight update, or a batch of validation."""
        batches = self.batches if self.training else self.validation_batches
        return batches.global_batch_size

    # ------------------------------------------------------------------ IPUs

    @property
    def stages(self) -> int:
        """Stages of the pipeline; 1 without splits."""
        return len(self.pipeline_splits) + 1

    @property
    def shards(self) -> int:
        """IPUs of one replica in training."""
        return max(self.device_mapping) + 1 if self.device_mapping else self.stages

    @property
    def pipelines_validation(self) -> bool:
        """Whether validation is a pipeline: it needs stages to be one."""
        return self.pipeline_validation_model and self.stages > 1

    @property
    def validation_shards(self) -> int:
        """IPUs of one replica in validation."""
        return self.shards if self.pipelines_validation else 1

    @property
    def measured_replicas(self) -> int:
        """Copies of the model in the phase that is measured, which poprun starts."""
        return self.replicas if self.training else self.validation_batches.replicas

    @property
    def measured_shards(self) -> int:
        """IPUs of one of these copies."""
        return self.shards if self.training else self.validation_shards

    @property
    def ipus(self) -> int:
        """IPUs that the configuration needs: those of all replicas; 0 for a host."""
        return IPUS_OF_SYSTEM[self.system] and self.shards * self.replicas

    @property
    def processes(self) -> int:
        """Processes that run the case together: on a host each replica is one."""
        return self.replicas if self.system == "host" else self.instances

    @property
    def data_parallel(self) -> bool:
        """Whether these processes are one job, whose items they share."""
        return self.processes > 1

    @property
    def xla_recompute(self) -> bool:
        """Whether activations are computed again, as the runtimes call it."""
        return self.recomputation

    @property
    def ipu_options(self) -> IpuOptions:
        """The options as the IPU's runtime calls them and in its units."""
        return IpuOptions.of(self)

    # ------------------------------------------------------------------ network and recipe

    @property
    def network(self) -> NamedNetwork:
        """The network that the options stand for. Raises ValueError for an impossible one."""
        norm = self.norm_layer
        return NamedNetwork(
            model_name=self.model_name,
            classes=self.classes,
            image_shape=self.image_shape,
            norm=norm.get("name", "custom_batch_norm"),
            norm_momentum=norm.get("momentum", 0.97),
            groups=norm.get("num_groups", 0),
            channels_per_group=norm.get("channels_per_group", 0),
            replica_group=self.dbn_replica_group_size,
        )

    def classifier(self) -> Callable[..., Any]:
        """Return what builds the network: (tf, dtype=, group_norm=) -> Classifier."""
        return partial(build_named, network=self.network, seed=self.seed)

    @property
    def recipe(self) -> ApplicationRecipe:
        """How the weights are trained. Raises ValueError for values without meaning."""
        return recipe_of(self)

    # ------------------------------------------------------------------ rules

    @property
    def warnings(self) -> Tuple[str, ...]:
        """What will be another than asked for, one sentence each."""
        found = [text for _, _, text in rules.changes(self)]
        if self.training:
            found += [*self.batches.warnings, *self.program.warnings]
        return tuple(found)

    def check(self) -> None:
        """Raise ValueError where options contradict each other."""
        super().check()
        rules.check(self)
