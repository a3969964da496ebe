"""`--set KEY=VALUE`: parse it, and turn its text into an option's type."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Iterable, List, Sequence, Type

import pytest

from ipubench.fixtures.case.options import ALIASES, CaseConfig, check_value, nearest, option_types
from ipubench.fixtures.case.values import from_text

OPENING = {"{": "}", "[": "]", "(": ")"}
# Options with a command-line option of their own, and those that name the case.
RESERVED = {"data": "--data=", "precision": "--precision=", "mode": "-k ", "system": "--device="}
# Options of the original programs that are something else here.
ELSEWHERE = {
    "config": "each configuration is a case: choose it with -k NAME",
    "config_path": "each configuration is a case: choose it with -k NAME",
    "profile": "--profile=DIR leaves reports of the selected cases there",
    "data_dir": "--dataset-dir=PATH names the data set",
    "dataset_path": "--dataset-dir=PATH names the data set",
    "generated_data": "use --data=generated",
    "no_validation": "a training case only trains; validation is a case of its own",
    "ckpts_per_epoch": "of the training cases only those of bench_application write checkpoints",
    "standard_imagenet": "the plain TFRecord pipeline is the only one",
    "no_dataset_cache": "use --set=dataset_cache=false",
    "group_norm": "use --set=batch_norm=false",
    "select_ipu": "use --device-id=N",
    "gc_profile": "--profile=DIR leaves reports of the selected cases there",
    "dataset": "every network has the 1000 classes of ImageNet",
    "dataset_benchmark": "a case always runs its network, and waits for data are part of its time",
    "restore_path": "weights are seeded random numbers: --set=seed=N chooses them",
    "init_path": "weights are seeded random numbers: --set=seed=N chooses them",
    "log_dir": "--results-dir=DIR names the folder of the records",
    "no_logs": "each run leaves one record; --results-dir=DIR says where",
    "log_all_instances": "the instances of a case leave one record together",
    "log_freq": "every round is recorded; --set=logs_per_epoch=N sets the host calls of an epoch",
    "hostside_image_mixing": "images are mixed on the device",
    "weight_avg_N": "weights are averaged at each update: use --set=weight_avg_exp=DECAY",
    "distributed": "use --set=instances=N",
    "fused_preprocessing": "--set=eight_bit_io=true normalises images on the device",
    "num_io_tiles": "the selected cases keep no tiles for transfers; cases in PyTorch can",
    "widenet": "it belongs to networks for CIFAR, which there are none of",
    "sharding_exclude_filter": "nothing is sharded automatically: name pipeline_splits",
    "sharding_include_filter": "nothing is sharded automatically: name pipeline_splits",
    "wandb": "nothing is uploaded; --results-dir=DIR names the folder of the records",
    "wandb_run_name": "nothing is uploaded; --results-dir=DIR names the folder of the records",
    "wandb_tags": "nothing is uploaded; --results-dir=DIR names the folder of the records",
    "sweep": "give several values, separated by commas; each is a case of its own",
    "target_accuracy": "accuracies are recorded and not judged",
    "mlperf_logging": "loading and compiling are always timed apart, before the warm-up",
}
# What the values of an option of the original programs are here.
DATA_OF = {
    "ipu": "synthetic",
    "true": "synthetic",
    "host": "generated",
    "cpu": "generated",
    "none": "real",
    "false": "real",
}


def parse_assignments(words: Sequence[str]) -> Dict[str, List[str]]:
    """Return key -> values, in the order given. Raises pytest.UsageError on a syntax error."""
    assignments: Dict[str, List[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise pytest.UsageError(f"--set={word}: write --set=KEY=VALUE[,VALUE...]")
        if key in RESERVED:
            raise pytest.UsageError(f"--set={word}: use {RESERVED[key]}VALUE instead")
        if key == "synthetic_data":
            raise pytest.UsageError(f"--set={word}: {_synthetic_data(text)}")
        if key == "name":
            raise pytest.UsageError(f"--set={word}: the name of a case cannot be set")
        assign(assignments, key, split_values(text), f"--set={word}")
    return assignments


def _synthetic_data(text: str) -> str:
    """Return which data is meant by a value of the original's --synthetic-data."""
    data = DATA_OF.get(text.strip().lower())
    if data is not None:
        return f"use --data={data} instead"
    return "use --data=synthetic (the original's ipu) or --data=generated (its host or cpu) instead"


def assign(assignments: Dict[str, List[str]], key: str, values: List[str], source: str) -> None:
    """Add an assignment; UsageError where the option has one already, by whichever name."""
    for other in assignments:
        if ALIASES.get(other, other) == ALIASES.get(key, key):
            raise pytest.UsageError(
                f"{source}: {key} is given twice{f', also as {other}' if other != key else ''}; "
                "separate the values of a sweep by commas"
            )
    if ALIASES.get(key, key) == "steps" and len(values) > 1:
        raise pytest.UsageError(f"{source}: steps says how long to measure; give one value")
    assignments[key] = values


def split_values(text: str) -> List[str]:
    """Split at commas, except within brackets or double quotes, so that JSON stays whole."""
    values = [""]
    closing: List[str] = []
    quoted = False
    for character in text:
        if character == "," and not closing and not quoted:
            values.append("")
            continue
        if character == '"':
            quoted = not quoted
        elif not quoted and character in OPENING:
            closing.append(OPENING[character])
        elif not quoted and closing and character == closing[-1]:
            closing.pop()
        values[-1] += character
    return values


def convert(cls: Type[CaseConfig], key: str, text: str) -> Any:
    """Return the value of option ``key`` that ``text`` stands for. Raises ValueError."""
    value = from_text(option_types(cls)[key], text)
    check_value(cls, key, value)
    return value


def unknown_key_message(key: str, classes: Iterable[Type[CaseConfig]]) -> str:
    """Say that no selected case has an option, which ones there are and which is nearest."""
    if key.replace("-", "_") in ELSEWHERE:
        return f"--set: {key!r} is no option of a case; {ELSEWHERE[key.replace('-', '_')]}"
    known = sorted({item.name for cls in classes for item in dataclasses.fields(cls)})
    settable = [name for name in known if name not in RESERVED and name != "name"]
    aliases = [alias for alias, target in ALIASES.items() if target in settable]
    return (
        f"--set: no selected case has an option {key!r}{nearest(key, settable + aliases) or '.'} "
        f"The selected cases have: {', '.join(settable)}"
    )
