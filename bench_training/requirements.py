"""Options of an image classifier that have an effect only with certain values of others."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Mapping, Tuple

from ipubench.fixtures.case.options import CaseConfig

Needs = Mapping[str, Tuple[Any, ...]]
EFFICIENTNET: Needs = {"model": ("efficientnet",)}
RMSPROP: Needs = {"optimiser": ("RMSprop",)}
LARS: Needs = {"optimiser": ("LARS",)}
STEPPED: Needs = {"lr_schedule": ("stepped",)}
EXPONENTIAL: Needs = {"lr_schedule": ("exponential",)}
POLYNOMIAL: Needs = {"lr_schedule": ("polynomial_decay_lr",)}
#: Option -> options that it needs, with the values that give it an effect.
NEEDS: Dict[str, Needs] = {
    "groups": {"batch_norm": (False,)},
    "bn_decay": {"batch_norm": (True,)},
    "convolution_groups": {"model": ("resnext",)},
    "group_dim": {"model": ("resnext", "efficientnet")},
    "expand_ratio": EFFICIENTNET,
    "dropout_rate": EFFICIENTNET,
    "block_survival_prob": EFFICIENTNET,
    "no_se": EFFICIENTNET,
    "depth_divisor": EFFICIENTNET,
    "top_width": EFFICIENTNET,
    "use_relu": EFFICIENTNET,
    "width_coefficient": EFFICIENTNET,
    "depth_coefficient": EFFICIENTNET,
    "momentum": {"optimiser": ("momentum", "RMSprop", "LARS")},
    "base_learning_rate": {"abs_learning_rate": (0.0,)},
    "learning_rate_decay": STEPPED,
    "learning_rate_schedule": STEPPED,
    "lr_decay_rate": EXPONENTIAL,
    "lr_drops": EXPONENTIAL,
    "poly_lr_decay_power": POLYNOMIAL,
    "poly_lr_end_ratio": {**POLYNOMIAL, "abs_end_learning_rate": (0.0,)},
    "abs_end_learning_rate": POLYNOMIAL,
    "rmsprop_decay": RMSPROP,
    "rmsprop_base_decay_exp": {**RMSPROP, "rmsprop_decay": (0.0,)},
    "rmsprop_epsilon": RMSPROP,
    "lars_eeta": LARS,
    "lars_epsilon": LARS,
    "lars_weight_decay": LARS,
    "lars_skip_list": LARS,
}


def check_needs(config: CaseConfig) -> None:
    """Raise ValueError for a changed option that has no effect."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == field.default:
            continue
        for other, values in NEEDS.get(field.name, {}).items():
            if getattr(config, other) not in values:
                raise ValueError(
                    f"{field.name}={_text(value)} has no effect with "
                    f"{other}={_text(getattr(config, other))}: it needs "
                    f"{other}={' or '.join(map(_text, values))}"
                )


def _text(value: Any) -> str:
    """Return a value in the form of ``--set``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
