"""Runs a command and records its figures."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Dict, List

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.masking import mask_words
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.poplar.poplar_options import reporting
from ipubench.plugins.benchmarks_yml import command
from ipubench.plugins.benchmarks_yml.cases import SpecConfig, entry_of
from ipubench.plugins.benchmarks_yml.command_results import (
    CommandResults,
    columns,
    described,
    results_of,
)
from ipubench.plugins.benchmarks_yml.metrics import MetricError
from ipubench.plugins.measure import inspection
from ipubench.plugins.measure.base import Calls, CaseRun, timed_by_another
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.record import host_process, pytest_benchmark_adapter
from ipubench.plugins.record.pytest_benchmark_adapter import EnoughRounds
from ipubench.plugins.record.statistics import latency
from ipubench.plugins.record.structs import Memory, Record, Spec
from ipubench.plugins.record.text import safe_name

#: The record's value for the compilation, which the command includes.
WITHIN = "within the command"


class CommandMeter:
    """Measures the command of one case."""

    def __init__(self, case_run: CaseRun) -> None:
        self.case_run = case_run
        self.case, self.device = case_run.case, case_run.device
        self.config = case_run.item.config
        self.entry = entry_of(case_run.item)
        self.run = case_run.run

    def __call__(self, config: SpecConfig) -> None:
        """Run the command once and record its figures as the rounds of this process."""
        option = options_of(self.config)
        environ = self._environment(config)
        measured = not config.compile_only and option.profile is None
        self.case_run.wait_for_quiet()
        self._others = Disturbance.of(self.device)
        self._others.read()
        with self.run.spent.during("command"):
            ran = command.run(self.entry, config, environ, self._logs(), self.run.progress.phase)
        self._others.read()
        try:
            results = results_of(self.entry, config, ran) if measured else None
        except MetricError as error:
            problem = f"{self.entry.file}: {config.name}: {error}"
            raise command.failure(problem, ran.stderr) from None
        if results is None:
            pytest_benchmark_adapter.leave_out(self.case_run.benchmark)
            how = "compiled" if config.compile_only else "profiled"
            line = f"{self.case.id}: {how} in {ran.seconds:.1f} s, and not measured"
            self.run.closing.append(line)
            return
        record = self._record(config, ran, results)
        seconds = self._replay(results.rounds, record)
        if seconds:  # empty with --benchmark-disable
            # A command has ended with its processes, so there is nothing to release.
            self.case_run.finish(record, release=lambda: None)

    def _environment(self, config: SpecConfig) -> Dict[str, str]:
        option = options_of(self.config)
        base = command.base_environment(option.dataset_dir)
        missing = command.needs(self.entry, config, base)
        if missing:
            raise CaseError(missing)
        tuned = self.case_run.conditions["allocator"] != "system"
        environ = command.environment(config, self.device, base, tuned)
        if option.profile is not None:
            folder = inspection.folder_of("--profile", option.profile, self.case_run.item)
            changed = {**environ, **reporting(environ, folder)}
            environ = {name: value for name, value in changed.items() if value is not None}
        return environ

    def _logs(self) -> Path:
        """Return a folder for the output, which stays with the results.

        Its path contains the file's name, because cases of two files may share a name.
        """
        journal = self.run.path.stem
        file = safe_name(self.case_run.item.nodeid.split("::")[0])
        folder = self.run.results_dir / "specs" / journal / file / self.case.id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("stdout", "stderr"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(folder / name)
        except OSError as error:
            raise CaseError(
                f"the output of the command cannot be kept: {error}; name another folder with "
                "--results-dir=PATH"
            ) from None
        return folder

    def _record(self, config: SpecConfig, ran: command.Ran, results: CommandResults) -> Record:
        spec = Spec(
            file=self.entry.file,
            entry=self.entry.name,
            variant=config.name,
            # Without the values of variables, and with secrets masked.
            command=mask_words(command.arguments_of(config, {})),
            folder=str(self.entry.folder),
            seconds=ran.seconds,
            git=host_process.git_revision(self.entry.folder),
            copies=results.copies,
            metrics={m.name: described(m, results) for m in self.entry.metrics},
            derived=results.derived,
            columns=columns(self.entry, config, results),
            stdout=str(ran.stdout),
            stderr=str(ran.stderr),
        )
        return timed_by_another(
            self.case_run.first_facts()._replace(framework="command"),
            Calls("the command", 1, results.unit),
            results.rounds,
            latency(results.latencies, results.source),
            Memory(ran.peak_bytes, "process start", None),
            self._others.describe_at_once(len(results.rounds)),
            effective={"precision": config.precision},
            compile=WITHIN,
            canary_kind=self.device.canary_kind,
            data={"mode": config.data},
            counters={**results.figures, **results.derived},
            spec=spec,
        )

    def _replay(self, rounds: List[float], record: Record) -> List[float]:
        """Add the rounds to pytest-benchmark's statistics, with a clock that replays them."""

        def before_round(shown: List[float]) -> None:
            if len(shown) == len(rounds):
                raise EnoughRounds

        # Each round reads the clock twice. It starts from zero, because a running sum would lose
        # the precision of short rounds.
        moments = [moment for seconds in rounds for moment in (0.0, seconds)]
        return pytest_benchmark_adapter.run_rounds(
            self.case_run.benchmark,
            lambda: None,
            before_round,
            iter(moments).__next__,
            record.effective_options,
            batches=1,
        )
