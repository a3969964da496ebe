"""Measures cases that cannot share this process, each in a separate process.

The SDK's TensorFlow reads its flags (TF_POPLAR_FLAGS) once per process, and cases with synthetic
data need other flags than cases with host data. This process has the flags that most cases need.
If a resumed run was killed, the case that ran at that time may be the cause: it could kill this
process too.

The result counts as if it had been measured here.
"""

from __future__ import annotations

import collections
import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Counter, Iterator, List, Optional, Sequence

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.errors import CaseError, counted
from ipubench.fixtures.machine.process import LAST_LINES
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS, case_flags
from ipubench.plugins.command_line.arguments import inspection_arguments
from ipubench.plugins.measure.base import Measured, fail_where_implausible, state_of
from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.results.lines import CaseLine
from ipubench.plugins.selection.selected import case_of
from ipubench.plugins.state import Flags, run_of

if TYPE_CHECKING:
    from ipubench.plugins.processes.remote_case import Outcome


def flags_of(item: pytest.Item) -> Optional[Flags]:
    """Return the flags that a case needs; None unless it runs TensorFlow on an IPU."""
    case = case_of(item)
    kind = devices.of(run_of(item.config).selection.device)
    if case is None or not kind.poplar:
        return None
    if "tensorflow" not in getattr(item, "fixturenames", ()):
        return None
    needed = case_flags(
        ipu_model=kind.emulated,
        synthetic=case.config.data == "synthetic",
        zero_values=getattr(case.config, "use_zero_values", False),
        count_cycles=getattr(case.config, "report_hw_cycle_count", False),
    )
    return tuple(sorted(needed.items()))


def why_apart(item: pytest.Item) -> str:
    """Return why a selected case is measured in a separate process, or ''."""
    run = run_of(item.config)
    if item.nodeid in run.results.suspects:
        return f"the resumed run was killed while {item.nodeid} ran"
    flags = flags_of(item)
    if flags is not None and flags != run.flags:
        return "TensorFlow reads once whether data is synthetic"
    return ""


def flags_of_most(items: Sequence[pytest.Item]) -> Optional[Flags]:
    """Return the flags that most cases need; on a tie, those of the first case."""
    found: Counter[Flags] = collections.Counter(filter(None, map(flags_of, items)))
    return max(found, key=lambda flags: found[flags], default=None)


def why_cases_are_apart(items: Sequence[pytest.Item]) -> List[str]:
    """Return lines: how many cases get a separate process, and why."""
    lines = []
    for why, count in sorted(collections.Counter(filter(None, map(why_apart, items))).items()):
        one = "case is measured in a separate process"
        what = counted(count, one, "cases are measured in separate processes")
        lines.append(f"{what}, because {why}")
    return lines


def measure_apart(item: pytest.Item) -> None:
    """Have a case measured in a separate process instead of running its test here.

    pytest_pyfunc_call would be too late: unittest.TestCase methods are called without it.
    """
    if isinstance(item, pytest.Function) and why_apart(item):
        item.runtest = partial(_measure, item)  # type: ignore[method-assign]


def _measure(item: pytest.Function) -> None:
    """Run the case in another process; take over its record, its lines and its outcome."""
    config, run = item.config, run_of(item.config)
    run.progress.phase("measuring in a separate process")
    fixture: Any = item.funcargs.get("benchmark")  # None for a function without a meter
    disabled = fixture is not None and fixture.disabled
    if fixture is not None:
        pytest_benchmark_adapter.leave_out(fixture)
    arguments = [
        *inspection_arguments(config, run.selection.folders.get(item.nodeid, "")),
        *(["--benchmark-disable"] if disabled else []),
    ]
    # The cases of this process have added their flags to the environment.
    variables = {TF_FLAGS: run.exported_flags}
    with _results_folder(item) as folder, run.bounds.lifted():
        from ipubench.plugins.processes.remote_case import RemoteCase

        case = RemoteCase(run, item.nodeid, arguments=arguments, variables=variables)
        ended = case.run(folder)  # without a time limit, as here
    results = ended.results
    run.closing += [line for line in results.closing if line not in run.closing]
    benchmark = results.benchmarks.get(item.nodeid)
    if benchmark is not None:
        run.spent.split(benchmark.record.spent)
        run.add(CaseLine(benchmark))
        pytest_benchmark_adapter.adopt(config, benchmark)
        fail_where_implausible(benchmark.record, f"; the record is in {run.path}")
    outcome = results.outcomes.get(item.nodeid)
    if outcome == "skipped":
        pytest.skip(results.reasons.get(item.nodeid, ""))
    if outcome != "passed":
        _fail(results.reasons.get(item.nodeid, ""), ended)
    if benchmark is not None:
        state_of(item).measured = [Measured(benchmark, release=lambda: None)]


def _fail(reason: str, ended: Outcome) -> None:
    """Fail with the message of the case's process, or with the last lines that it printed."""
    message = next(reversed(list(ended.results.messages.values())), "")
    if message:
        raise CaseError(message)
    problem = reason or f"the case's process ended with {ended.how}"
    lines = ended.lines[-LAST_LINES:]
    pytest.fail("\n".join([f"{problem}; the last lines of its process:", *lines]), pytrace=False)


@contextlib.contextmanager
def _results_folder(item: pytest.Function) -> Iterator[Path]:
    """Make the folder for the journal and the logs of a case's process; keep only the logs.

    Raises CaseError if the folder cannot be made.
    """
    case: Any = case_of(item)
    run = run_of(item.config)
    folder = run.results_dir / "apart" / run.path.stem / f"{item.path.stem}-{case.id}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CaseError(f"{folder} cannot be made: {error}; choose another --results-dir") from None
    try:
        yield folder
    finally:
        for path in folder.glob("run-*.jsonl"):
            path.unlink()
        for empty in (folder, folder.parent, folder.parent.parent):
            with contextlib.suppress(OSError):  # not empty: it has logs
                empty.rmdir()
