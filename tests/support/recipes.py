"""What a recipe makes of its options, without TensorFlow: rates, optimiser, mixing, loss."""

from __future__ import annotations

from typing import Any, List


def recipe_of(config: Any) -> List[Any]:
    """Return the rates of a run, and the arguments of its other parts."""
    every = max(1, config.total_updates // 1000)
    rates = [config.rate(update) for update in range(0, config.total_updates, every)]
    optimiser = config.optimiser_for(None)
    averages = config.averages_for(None, ())
    mixed = [getattr(config, name, None) for name in ("_mixup_alpha", "_cutmix_lambda")]
    return [
        *(rates, type(optimiser).__name__, vars(optimiser)),
        None if averages is None else vars(averages),
        *(mixed, config.label_smoothing, config.gradient_accumulation),
    ]
