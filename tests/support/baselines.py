"""Baseline entries for tests, made from a real file."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any, Dict

from msgspec.structs import replace

from ipubench.plugins.baseline.__main__ import main
from ipubench.plugins.baseline.format import Document, checked
from ipubench.plugins.baseline.store import load_all, save
from ipubench.plugins.record.structs import Benchmark, as_plain
from tests.support.harness import Outcome, Project, run_command, run_here

# The identifiers of entry("a") and entry("b").
A, B = "bench_x.py::bench_x[a]", "bench_x.py::bench_x[b]"
STORED = Path(__file__).resolve().parents[1] / "stored"
BASELINE = STORED / "baseline.json"


def load(path: Path) -> Dict[str, Benchmark]:
    """Return node id -> its newest entry."""
    ordered = sorted(load_all(path), key=lambda one: one.record.time)
    return {benchmark.fullname: benchmark for benchmark in ordered}


@functools.lru_cache(maxsize=None)
def _first() -> Benchmark:
    """Return the file's first entry, read and checked once."""
    return load_all(BASELINE)[0]


def entry(
    case: str = "a",
    machine: str = "cpu/x",
    config_hash: str = "h",
    time: str = "2026-01-02T03:04:05Z",
    slower: float = 1.0,
    processes: int = 1,
    git: str = "0123456789abcdef",
) -> Benchmark:
    """Return an entry of the newest format: ``slower`` times 0.01 s per batch, 8 items each."""
    benchmark = copy.deepcopy(as_plain(_first()))
    record = benchmark["extra_info"]["ipubench"]
    benchmark["fullname"] = f"bench_x.py::bench_x[{case}]"
    benchmark["name"] = f"bench_x[{case}]"
    benchmark["stats"]["data"] = [value * slower for value in benchmark["stats"]["data"]]
    for key in ("median", "low", "high", "mean", "min", "max"):
        record["throughput"][key] /= slower
    record.update(name=case, config_hash=config_hash, time=time, git=git, overrides=[])
    record["device"]["fingerprint"] = machine
    own = record["processes"][0]
    del record["processes"][1:]
    own.update(time=time, seconds=[value * slower for value in own["seconds"]])
    record["processes"] += [{**own, "fresh": True} for _ in range(processes - 1)]
    return Benchmark.of(benchmark)


def document(*benchmarks: Benchmark) -> Document:
    """Return a document with these entries, as a run passes it to ``save``."""
    stored = json.loads(BASELINE.read_text(encoding="utf-8"))
    return replace(checked({**stored, "benchmarks": []}), benchmarks=benchmarks)


class Shell:
    """The command line of baselines in a project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder

    def __call__(self, *words: str) -> Outcome:
        """Run a command in this process, or in a new one for ``prune``, which starts Python."""
        return run_here(self.folder, self.project.environment, main, *words)

    def alone(self, *words: str) -> Outcome:
        """Run ``python -m ipubench.plugins.baseline`` as a user does."""
        outcome = run_command(
            self.folder, self.project.environment, "ipubench.plugins.baseline", *words
        )
        assert "Traceback" not in outcome.text, outcome.text
        return outcome

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").assert_code(0).text)

    def store(self, name: str, *benchmarks: Benchmark) -> None:
        save(self.path(name), document(*benchmarks))

    def path(self, name: str) -> Path:
        return self.folder / "baselines" / f"{name}.json"
