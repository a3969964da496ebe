"""Finds the real data before anything runs, and lists in the header which data it is."""

from __future__ import annotations

import os
from typing import Any, List, Set, Tuple

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.data.cache import cache_dir
from ipubench.fixtures.data.provider import example_splits, split_of
from ipubench.fixtures.data.sources import KINDS, Key, in_user_folder, source
from ipubench.fixtures.data.tfds.feed import PREPARED_DATASETS
from ipubench.fixtures.pytest_fixtures import shared_of
from ipubench.plugins.selection.functions import asks_for
from ipubench.plugins.selection.selected import case_of

SAMPLES_ONLY = "not a data set; --dataset-dir=PATH or DATASETS_DIR names one"


def find_data(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Find the images and TFRecords that the selected cases need. Raises UsageError."""
    found = shared_of(config).found
    try:
        for key in _read(items):
            # Only TensorFlow makes samples of the other kinds: the first case that imports it does.
            find = source if key == ("images",) else in_user_folder
            found[key] = find(key, options_of(config).dataset_dir, os.environ)
            if found[key] is None:
                cache_dir(os.environ)
    except DataError as error:
        raise pytest.UsageError(str(error)) from error


def _read(items: List[pytest.Item]) -> List[Key]:
    """Return the real data that cases read, by kind."""
    keys: Set[Key] = set()
    for item in items:
        case = case_of(item)
        # We do not choose what a command of a benchmarks.yml, or a project's `data`, reads.
        if case is None or case.config.data != "real" or not asks_for(item, "data"):
            continue
        dataset = getattr(case.config, "dataset", "")
        if dataset in PREPARED_DATASETS:
            keys.update(("prepared", dataset, split) for split in _splits(case))
        elif asks_for(item, "tensorflow"):
            keys.update(("records", split) for split in _splits(case))
        else:
            keys.add(("images",))
    return sorted(keys, key=lambda key: (list(KINDS).index(key[0]), key))


def _splits(case: Case) -> Tuple[str, ...]:
    config: Any = case.config
    if hasattr(config, "training"):
        return example_splits(config.training, config.validation)
    return (split_of(config.mode),)


def which_data(config: pytest.Config) -> List[str]:
    """Return lines: which real data the cases read, and whether it is only samples."""
    lines = []
    for (kind, *_), found in shared_of(config).found.items():
        text = KINDS[kind].samples_text if found is None else KINDS[kind].describe(found)
        end = f", {SAMPLES_ONLY}" if found is None or found.samples else ""
        lines.append(f"real data: {text}{end}")
    return list(dict.fromkeys(lines))  # both splits of samples have the same line
