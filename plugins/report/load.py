"""``ipubench.load(path)``: stored results as a table, for a notebook or a script."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Union

from ipubench.fixtures.machine.files import FOLDER, user_path
from ipubench.plugins.baseline import history, store
from ipubench.plugins.baseline.commands import suite_root
from ipubench.plugins.baseline.entries import newest
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.runs import read_sound_run
from ipubench.plugins.baseline.trends import levels, trends_with_runs
from ipubench.plugins.record.text import complain
from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.report.stored import stored_report
from ipubench.plugins.results.case_row import CaseRow
from ipubench.plugins.results.columns import CSV
from ipubench.plugins.results.rows import Report

#: The gate of a comparison, as that of python -m ipubench.plugins.report.
GATE = 0.02


class Table(List[Dict[str, Any]]):
    """Records with equal keys: the columns of results.csv."""

    def to_pandas(self) -> Any:
        """Return it as a table of pandas, which must be installed."""
        pandas = importlib.import_module("pandas")
        return pandas.DataFrame(list(self), columns=[_key_of(column.csv) for column in CSV])


def load(
    path: Union[str, os.PathLike[str]],
    baseline: Optional[Union[str, os.PathLike[str]]] = None,
    gate: float = GATE,
) -> Table:
    """Return one record per case of a run, or one per case and run of a history.

    ``path``: a journal, a baseline or a folder with one of them, or the folder of a history or of
    one machine in it. A run that was compared with nothing is compared with ``baseline``, a name or
    a path. A record's keys are the columns of results.csv (docs/reference/api.md lists them), and
    None stands for what a case does not have. Raises BaselineError for what cannot be read.
    """
    given = user_path(os.fspath(path))
    if baseline is not None:
        before = store.baseline_path(os.fspath(baseline), suite_root())
        return Table(map(_record_of, stored_report([given], before, gate).rows()))
    if _is_history(given):
        return Table(map(_record_of, _of_history(given)))
    stored = read_sound_run(given)
    return Table(map(_record_of, Report(newest(stored.benchmarks), stored.runs).rows()))


def _is_history(path: Path) -> bool:
    """Return whether a folder is a history or a machine's part of one, and has no run's file."""
    if store.kind(path) != FOLDER:
        return False
    found = store.listed(path)
    if any(one.name == "baseline.json" or one.suffix == ".jsonl" for one in found):
        return False
    return any(map(store.numbered_in, [path, *(one for one in found if one.is_dir())]))


def _of_history(folder: Path) -> Iterator[CaseRow]:
    """Yield the runs of each trend, oldest first; the first run of a level has the change."""
    kept = history.read(folder, lambda nodeid: True, sys.maxsize)
    if not kept.benchmarks:
        raise BaselineError("\n".join(kept.notes))
    for note in kept.notes:
        complain(note)
    found = trends_with_runs(kept.benchmarks)
    marked = history.with_changes([trend for trend, _ in found])
    for (_, runs), (trend, changes) in zip(found, marked):
        rates = [rate for _, rate in levels(trend, changes)]
        verdicts = {
            change.run: Verdict(
                "",
                before=before,
                now=now,
                change=change.change,
                low=change.low,
                high=change.high,
                reasons=[f"{history.chance_text(change.sure)} sure that it began with this run"],
            )
            for change, before, now in zip(changes, rates, rates[1:])
        }
        for number, run in enumerate(runs):
            (row,) = Report([run]).rows()
            change = verdicts.get(number, row.verdict)
            yield dataclasses.replace(row, verdict=change, reasons=change.reasons)


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
