"""What members say becomes part of the run: its journal, its progress, pytest's reports."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ipubench.plugins.record import pytest_benchmark_adapter
from ipubench.plugins.record.record import named, record_of, with_record
from ipubench.plugins.record.text import name_of_test
from ipubench.plugins.run.journal import run_of
from ipubench.plugins.run.progress import progress_key
from ipubench.plugins.run.results import run_key

#: Where a journal's line names its case, besides its benchmark.
CASE = "case"


class Intake:
    """Takes what was measured on a host into this run, under the names that the run knows."""

    def __init__(self, config: pytest.Config, each_host: bool) -> None:
        """``each_host``: a case has a result for each host, and is called by its name as well."""
        self.config = config
        self._each_host = each_host

    def name(self, nodeid: str, member: str) -> str:
        """Return what a case is called here."""
        return named(nodeid, member) if self._each_host else nodeid

    def rename(self, nodeids: Dict[str, str], hosts: Dict[str, str]) -> None:
        """Have the run be about each case of each host: name here -> node id, and -> host."""
        progress = self.config.stash[progress_key]
        shown = {key: progress.names.get(nodeid, "") for key, nodeid in nodeids.items()}
        progress.expect({key: named(name, hosts[key]) for key, name in shown.items() if name})
        run = self.config.stash.get(run_key, None)
        if run is not None:
            run.order = [key for key, nodeid in nodeids.items() if nodeid in run.order]
            run.nodeids = nodeids
            run.add({"type": "selected", "cases": run.order})

    def line(self, member: str, line: Dict[str, Any]) -> None:
        """Put a line of a host's journal into this run's."""
        run = run_of(self.config)  # which a test may begin that turns out to measure
        if line["type"] in ("case", "fresh"):
            line["benchmark"] = self._benchmark(member, line["benchmark"])
        elif CASE in line:
            line[CASE] = self.name(line[CASE], member)
        progress = self.config.stash[progress_key]
        if line["type"] == "begin" and line[CASE] in progress.names:
            progress.begin(line[CASE])
        run.add(line)
        if line["type"] == "case":
            pytest_benchmark_adapter.adopt(self.config, line["benchmark"])

    def _benchmark(self, member: str, benchmark: Dict[str, Any]) -> Dict[str, Any]:
        """Return a benchmark that says on which host it was measured."""
        record = {**record_of(benchmark), "host": member}
        if self._each_host:
            names = {key: named(benchmark[key], member) for key in ("name", "fullname")}
            record["name"] = named(record["name"], member)
            benchmark = {**benchmark, **names}
        return with_record(benchmark, record)

    def report(self, member: str, data: Dict[str, Any]) -> pytest.TestReport:
        """Hand a test's report to pytest, show how its case ended, and return it."""
        hook = self.config.hook
        report: pytest.TestReport = hook.pytest_report_from_serializable(
            config=self.config, data=data
        )
        report.nodeid = self.name(report.nodeid, member)
        self._show(report, member)
        hook.pytest_runtest_logreport(report=report)
        return report

    def failed(self, key: str, why: str) -> None:
        """Have a case fail that no host could end."""
        run = self.config.stash.get(run_key, None)
        if run is not None:
            run.results.forget([key])
            run.add({"type": "outcome", "case": key, "outcome": "failed", "why": why})
        place = (key.split("::")[0], None, name_of_test(key))
        report = pytest.TestReport(key, place, {}, "failed", why, "???")  # type: ignore[arg-type]
        self._show(report, "")
        self.config.hook.pytest_runtest_logreport(report=report)

    def _show(self, report: pytest.TestReport, member: str) -> None:
        progress = self.config.stash[progress_key]
        if report.nodeid in progress.names:
            report.ipubench_case = True  # type: ignore[attr-defined]
            progress.reported(report, f" on {member}" if member else "")

    def closing(self, found: List[str]) -> None:
        """Keep lines for the end of the summary, each once."""
        run = self.config.stash.get(run_key, None)
        if run is not None:
            run.closing += [line for line in found if line not in run.closing]
