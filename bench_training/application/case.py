"""One configuration of the application: its network, its images and its rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Tuple

from ipubench.bench_training.application import rules
from ipubench.bench_training.application.idle import idle_options
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.runtimes.tensorflow.application_options import ApplicationOptions
from ipubench.models.tensorflow.cnn.named import build_named


@dataclass(frozen=True)
class Application(ApplicationOptions):
    """One training or validation of the application."""

    def classifier(self) -> Callable[..., Any]:
        """Return a function that builds the network: (tf, dtype=, group_norm=) -> Classifier."""
        return partial(build_named, network=self.network, seed=self.seed)

    # ------------------------------------------------------------------ data

    def feed(self, data: Data) -> ApplicationFeed:
        """Return the images of the measured phase: training, otherwise validation."""
        if not self.training:
            return self.validation_feed(data)()
        return data.examples(self, self.micro_batch_size, training=True)

    def validation_feed(self, data: Data) -> Callable[[], ApplicationFeed]:
        """Return a function that makes validation feeds. It searches for data only when called."""
        size = self.validation_batches.micro_batch_size
        return lambda: data.examples(self, size, training=False)

    @property
    def images_per_batch(self) -> int:
        """Images of one batch of the meter: a weight update, or a batch of validation."""
        batches = self.batches if self.training else self.validation_batches
        return batches.global_batch_size

    @property
    def shown_batch(self) -> str:
        return self.batches.shown if self.training else ""

    # ------------------------------------------------------------------ rules

    @property
    def warnings(self) -> Tuple[str, ...]:
        """Effective values that differ from the given options, one sentence each."""
        found = [f"{name} is off: {reason}" for name, reason in rules.switched_off(self)]
        if self.training:
            found += [*self.batches.warnings, *self.program.warnings]
        return tuple(found)

    def idle(self) -> Dict[str, str]:
        """Return the options without effect in this configuration, with the reasons."""
        return {**super().idle(), **idle_options(self)}

    def check(self) -> None:
        """Raise ValueError if options contradict each other."""
        super().check()
        rules.check(self)
        self.check_recipe()
