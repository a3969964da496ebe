"""Judge the data set before anything runs, and say which images real data means."""

from __future__ import annotations

import os
from typing import Dict, List, Tuple

import pytest

from fixtures.config import Case
from fixtures.data.cache import cache_dir
from fixtures.data.folder import DataError
from fixtures.data.provider import (
    dataset_source,
    named_shards,
    shards_key,
    source_key,
    split_of,
)
from fixtures.data.shards import ShardSet
from plugins.selection import case_of

#: Whether cases read TFRecords and no folder of them was named.
sample_records_key = pytest.StashKey[bool]()
NAMES_ONE = "not a data set; --dataset-dir=PATH or DATASETS_DIR names one"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Find the images and TFRecords that the selected cases need; without them the run ends."""
    option = session.config.option
    if option.collectonly or option.describe or option.dry_run:
        return
    images, records = _real_cases(session.items)
    try:
        if images:
            session.config.stash[source_key] = dataset_source(option.dataset_dir, os.environ)
        if records:
            _find_shards(session.config, sorted({split_of(case.config.mode) for case in records}))
    except DataError as error:
        raise pytest.UsageError(str(error)) from error


def _real_cases(items: List[pytest.Item]) -> Tuple[List[Case], List[Case]]:
    """Return the cases that read image files and those that read TFRecords: TensorFlow's."""
    images: List[Case] = []
    records: List[Case] = []
    for item in items:
        case = case_of(item)
        if case is not None and case.config.data == "real":
            fixtures: List[str] = getattr(item, "fixturenames", [])
            (records if "tensorflow" in fixtures else images).append(case)
    return images, records


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
    for split, shards in config.stash.get(shards_key, {}).items():
        lines.append(f"real data: {len(shards.paths)} TFRecord files of {split} in {shards.root}")
    return lines
