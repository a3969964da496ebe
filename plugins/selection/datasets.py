"""Judge the data set before anything runs, and say which images real data means."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.cache import cache_dir
from ipubench.fixtures.data.imagenet.shards import ShardSet
from ipubench.fixtures.data.provider import (
    dataset_source,
    example_splits,
    named_prepared,
    named_shards,
    prepared_key,
    shards_key,
    source_key,
    split_of,
)
from ipubench.fixtures.data.tfds.feed import PREPARED_DATASETS
from ipubench.fixtures.data.tfds.find import PreparedSplit
from ipubench.plugins.command_line.words import only_lists
from ipubench.plugins.selection.expand import case_of

#: Whether cases read TFRecords and no folder of them was named.
sample_records_key = pytest.StashKey[bool]()
#: The same of cases that read small data sets.
sample_examples_key = pytest.StashKey[bool]()
NAMES_ONE = "not a data set; --dataset-dir=PATH or DATASETS_DIR names one"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Find the images and TFRecords that the selected cases need; without them the run ends."""
    option = session.config.option
    if only_lists(session.config):
        return
    images, records, prepared = _real_cases(session.items)
    try:
        if images:
            session.config.stash[source_key] = dataset_source(option.dataset_dir, os.environ)
        if records:
            _find_shards(session.config, sorted({split for c in records for split in _splits(c)}))
        if prepared:
            _find_prepared(session.config, prepared)
    except DataError as error:
        raise pytest.UsageError(str(error)) from error


def _real_cases(items: List[pytest.Item]) -> Tuple[List[Case], List[Case], List[Case]]:
    """Return the cases that read image files, TFRecords of ImageNet, and small data sets."""
    images: List[Case] = []
    records: List[Case] = []
    prepared: List[Case] = []
    for item in items:
        case = case_of(item)
        fixtures: List[str] = getattr(item, "fixturenames", [])
        # A command of a benchmarks.yml reads what it likes.
        if case is not None and case.config.data == "real" and "data" in fixtures:
            if getattr(case.config, "dataset", "") in PREPARED_DATASETS:
                prepared.append(case)
            else:
                (records if "tensorflow" in fixtures else images).append(case)
    return images, records, prepared


def _splits(case: Case) -> Tuple[str, ...]:
    config: Any = case.config
    if hasattr(config, "training"):
        return example_splits(config.training, config.validation)
    return (split_of(config.mode),)


def _find_prepared(config: pytest.Config, cases: List[Case]) -> None:
    found: Dict[Tuple[str, str], PreparedSplit] = {}
    for case in cases:
        for split in _splits(case):
            dataset = getattr(case.config, "dataset", "")
            source = named_prepared(dataset, split, config.option.dataset_dir, os.environ)
            if source is None:
                # Made like those of ImageNet.
                config.stash[sample_examples_key] = True
                cache_dir(os.environ)
            else:
                found[dataset, split] = source
    config.stash[prepared_key] = found


def _find_shards(config: pytest.Config, splits: List[str]) -> None:
    found: Dict[str, ShardSet] = {}
    for split in splits:
        shards = named_shards(split, config.option.dataset_dir, os.environ)
        if shards is None:
            # The samples are made with TensorFlow, so by the first case that has it.
            config.stash[sample_records_key] = True
            cache_dir(os.environ)
            return
        found[split] = shards
    config.stash[shards_key] = found


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say plainly when the images are not a data set."""
    lines = []
    source = config.stash.get(source_key, None)
    if source is not None:
        what = "sample images made by ipubench" if source.samples else "images"
        end = f", {NAMES_ONE}" if source.samples else ""
        lines.append(f"real data: {len(source.paths)} {what} in {source.root}{end}")
    if config.stash.get(sample_records_key, False):
        lines.append(f"real data: sample images made by ipubench, as TFRecords, {NAMES_ONE}")
    if config.stash.get(sample_examples_key, False):
        lines.append(f"real data: small sample images made by ipubench, {NAMES_ONE}")
    for (dataset, split), found in config.stash.get(prepared_key, {}).items():
        count = sum(found.lengths)
        lines.append(f"real data: {count} images of {split} of {dataset} in {found.root}")
    for split, shards in config.stash.get(shards_key, {}).items():
        lines.append(f"real data: {len(shards.paths)} TFRecord files of {split} in {shards.root}")
    return lines
