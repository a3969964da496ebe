"""One configuration of the application: its network, its recipe, its images and its rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Tuple

from ipubench.bench_training.application import rules
from ipubench.bench_training.application.idle import idle_options
from ipubench.bench_training.application.recipe import recipe_of
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.runtimes.tensorflow.application_options import ApplicationOptions
from ipubench.models.tensorflow.cnn.named import build_named
from ipubench.models.tensorflow.training.application import ApplicationRecipe


@dataclass(frozen=True)
class Application(ApplicationOptions):
    """One training or validation of the application."""

    def classifier(self) -> Callable[..., Any]:
        """Return what builds the network: (tf, dtype=, group_norm=) -> Classifier."""
        return partial(build_named, network=self.network, seed=self.seed)

    @property
    def recipe(self) -> ApplicationRecipe:
        """How the weights are trained. Raises ValueError for values without meaning."""
        return recipe_of(self)

    # ------------------------------------------------------------------ data

    def feed(self, data: Data) -> ApplicationFeed:
        """Return the images of the phase that is measured: training, else validation."""
        if not self.training:
            return self.validation_feed(data)()
        return data.examples(self, self.micro_batch_size, training=True)

    def validation_feed(self, data: Data) -> Callable[[], ApplicationFeed]:
        """Return what makes validation feeds; nothing is searched for before it is called."""
        size = self.validation_batches.micro_batch_size
        return lambda: data.examples(self, size, training=False)

    @property
    def images_per_batch(self) -> int:
        """Images of what one batch of the meter is: a weight update, or a batch of validation."""
        batches = self.batches if self.training else self.validation_batches
        return batches.global_batch_size

    # ------------------------------------------------------------------ rules

    @property
    def warnings(self) -> Tuple[str, ...]:
        """What will be another than asked for, one sentence each."""
        found = [text for _, _, text in rules.changes(self)]
        if self.training:
            found += [*self.batches.warnings, *self.program.warnings]
        return tuple(found)

    def idle(self) -> Dict[str, str]:
        """Return the options that change nothing as the others are, each with the reason."""
        return {**super().idle(), **idle_options(self)}

    def check(self) -> None:
        """Raise ValueError where options contradict each other."""
        super().check()
        rules.check(self)
        self.recipe.check()
