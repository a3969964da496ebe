"""Options that are JSON objects: the names and values of each optimiser, schedule and norm.

The original accepts unknown names and fails later, or not at all; here they are errors.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Mapping

from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.runtimes.tensorflow.application_recipe import TrainingOptions
from ipubench.models.tensorflow.training.recipe import FLOAT32_MAX

Names = Mapping[str, type]
OPTIMIZER: Dict[str, Names] = {
    "sgd": {"momentum": float},
    "lars": {"momentum": float, "weight_decay": float, "eeta": float, "epsilon": float},
    "rmsprop": {"momentum": float, "base_decay_exponent": int, "epsilon": float},
}
DECAY: Names = {"initial_learning_rate": float, "epochs_to_total_decay": float}
SCHEDULE: Dict[str, Names] = {
    "const": {"initial_learning_rate": float},
    "cosine": DECAY,
    "stepped": {"boundaries": tuple, "values": tuple},
    "polynomial": {**DECAY, "end_learning_rate_ratio": float, "power": float},
}
WARMUP: Names = {"warmup_mode": str, "warmup_epochs": float}
WARMUP_MODES = ("shift", "mask")
NORM: Dict[str, Names] = {
    "batch_norm": {"name": str, "momentum": float},
    "custom_batch_norm": {"name": str, "momentum": float},
    "group_norm": {"name": str, "num_groups": int, "channels_per_group": int},
}
GROUPS = ("num_groups", "channels_per_group")  # a group norm has one of them
WRITTEN = {
    float: "a number that float32 holds",
    int: "a whole number",
    str: "a word",
    tuple: "a list of numbers that float32 holds",
}


def check_parameters(config: TrainingOptions) -> None:
    """Raise ValueError for a name or value that an option does not have, or that is missing."""
    optimizer, schedule = config.optimizer, config.lr_schedule
    given, warmup, norm = config.optimizer_params, config.lr_warmup_params, config.norm_layer
    _check("optimizer_params", given, OPTIMIZER[optimizer], f"optimizer={optimizer}")
    for key in ("weight_decay", "eeta", "epsilon"):
        if not given.get(key, 0) >= 0:
            raise ValueError(f"optimizer_params: {key}={given[key]} is not 0 or above")
    given, names = config.lr_schedule_params, SCHEDULE[schedule]
    _check("lr_schedule_params", given, names, f"lr_schedule={schedule}", needed=names)
    _check("lr_warmup_params", warmup, WARMUP, needed=WARMUP if warmup else ())
    if warmup and warmup["warmup_mode"] not in WARMUP_MODES:
        mode = warmup["warmup_mode"]
        raise ValueError(
            f"lr_warmup_params: warmup_mode {mode!r} is not one of {', '.join(WARMUP_MODES)}"
            f"{nearest(mode, WARMUP_MODES)}"
        )
    name = norm.get("name")
    if name not in NORM:
        raise ValueError(
            f"norm_layer: name {name!r} is not one of {', '.join(NORM)}{nearest(str(name), NORM)}"
        )
    _check("norm_layer", norm, NORM[name], f"name={name}")
    if not 0 <= norm.get("momentum", 0) < 1:
        raise ValueError(f"norm_layer: momentum={norm['momentum']} is not 0 or above, and below 1")
    groups = [norm[key] for key in GROUPS if norm.get(key)]
    if name == "group_norm" and (len(groups) != 1 or groups[0] < 1):
        raise ValueError(
            "norm_layer: a group_norm has either num_groups or channels_per_group, above 0"
        )


def _check(
    option: str,
    given: Parameters,
    names: Names,
    of: str = "",
    needed: Iterable[str] = (),
) -> None:
    where = f"{option} with {of}" if of else option
    for key, value in given.items():
        if key not in names:
            raise ValueError(
                f"{where}: there is no {key!r}{nearest(key, names) or ';'} it has "
                f"{', '.join(names)}"
            )
        if not _fits(value, names[key]):
            raise ValueError(f"{where}: {key} is {value!r}, not {WRITTEN[names[key]]}")
    lacking = [key for key in needed if key not in given]
    if lacking:
        raise ValueError(f"{where}: it also needs {', '.join(lacking)}")


def _fits(value: Any, kind: type) -> bool:
    if kind is tuple:
        return isinstance(value, tuple) and all(_fits(part, float) for part in value)
    if isinstance(value, bool):
        return False
    if kind is float:
        # JSON and YAML also have infinite numbers and NaN.
        return isinstance(value, (int, float)) and abs(value) <= FLOAT32_MAX
    return isinstance(value, kind)
