"""`--history`: keep what each finished run measured (see plugins/baseline/history/store.py)."""

from __future__ import annotations

import pytest

from ipubench.plugins.baseline import BaselineError, measured, store
from ipubench.plugins.baseline.history.store import path_of
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.run.results import is_complete, run_key

# What a run had measured when it ended like this is no point of a trend.
UNFINISHED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the run's file; a disk that fails is reported and makes the exit code 4."""
    config = session.config
    run = config.stash.get(run_key, None)
    if not config.option.history or run is None or session.exitstatus in UNFINISHED:
        return
    if not is_complete(config):
        run.closing.append("nothing was kept for the history: the run ended before its last case")
        return
    benchmarks = measured(run.results)
    if not benchmarks:
        run.closing.append("nothing was kept for the history: no case was measured")
        return
    path = path_of(config.rootpath, benchmarks)
    try:
        store.write(path, pytest_benchmark_adapter.document(config, benchmarks))
    except BaselineError as error:
        run.closing.append(f"{error}; the results are in {run.journal.path}")
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        return
    run.closing.append(f"kept for the history in {path}")
