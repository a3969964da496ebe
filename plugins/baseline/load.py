"""``ipubench.load(path)``: stored results as flat records, for a notebook or a script."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Union

from ipubench.fixtures.machine.files import user_path
from ipubench.plugins.baseline.entries import newest
from ipubench.plugins.baseline.runs import read_sound_run
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import CSV
from ipubench.plugins.results.rows import Report


def load(path: Union[str, os.PathLike[str]]) -> List[Dict[str, Any]]:
    """Return one flat record per case of a journal, a baseline, or a folder with one of them.

    A record's keys are the columns of results.csv (docs/reference/api.md lists them), and None
    stands for what a case does not have. Raises BaselineError for what cannot be read.
    """
    stored = read_sound_run(user_path(os.fspath(path)))
    return list(map(_record_of, Report(newest(stored.benchmarks), stored.runs).rows()))


def _record_of(row: CaseRow) -> Dict[str, Any]:
    return {_key_of(column.csv): _plain(column.value(row)) for column in CSV}


def _key_of(heading: str) -> str:
    """Return a heading of results.csv as a key: 'latency p50 (ms)' is latency_p50_ms.

    A rate is in items per second and a share is a fraction, so that neither unit is in a key.
    """
    text = re.sub(r" \((items/s|1|UTC)\)", "", heading)
    text = text.replace("(1/", "(per ").replace("/", " per ")
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _plain(value: Any) -> Any:
    """Return a value of a row as one that a column holds."""
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    return None if value == "" else value
