"""Judge the data set before anything runs, and say which images real data means."""

from __future__ import annotations

import os
from typing import List

import pytest

from fixtures.data.folder import DataError
from fixtures.data.provider import dataset_source, source_key
from plugins.selection import case_of


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Find the images that the selected cases need; a folder that has none ends the run here."""
    option = session.config.option
    cases = [case_of(item) for item in session.items]
    real = any(case is not None and case.config.data == "real" for case in cases)
    if not real or option.collectonly or option.describe:
        return
    try:
        session.config.stash[source_key] = dataset_source(option.dataset_dir, os.environ)
    except DataError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_collectionfinish(config: pytest.Config) -> List[str]:
    """Say plainly when the images are not a data set."""
    source = config.stash.get(source_key, None)
    if source is None:
        return []
    if source.samples:
        return [
            f"real data: {len(source.paths)} sample images made by ipubench in {source.root}, not "
            "a data set; --dataset-dir=PATH or DATASETS_DIR names one"
        ]
    return [f"real data: {len(source.paths)} images in {source.root}"]
