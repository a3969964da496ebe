"""History: the runs kept below baselines/history, and the trend of each case over them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.entries import Benchmark, Key, key_of
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.history.change_points import change_points
from ipubench.plugins.record.process_sample import processes_of
from ipubench.plugins.record.record import record_of
from ipubench.plugins.record.statistics import median

FOLDER = Path("baselines", "history")
REVISION_LENGTH = 7


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a case: when (UTC, ISO 8601), of which revision, items per second."""

    time: str
    revision: str
    throughput: float
    processes: int


@dataclasses.dataclass(frozen=True)
class Trend:
    """The runs of one case in one configuration on one machine, oldest first."""

    key: Key
    unit: str
    points: Tuple[Point, ...]

    def changes(self) -> List[int]:
        """Return the index of the first run of each new level. Raises ChangesUnavailable."""
        return change_points([math.log(point.throughput) for point in self.points])


def path_of(root: Path, benchmarks: Sequence[Benchmark]) -> Path:
    """Return the file that keeps a run: baselines/history/MACHINE/TIME-REVISION-PROCESS.json.

    The process number keeps two runs within one second apart.
    """
    record = record_of(benchmarks[0])
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    revision = short_revision(record.get("git")) or "unversioned"
    name = f"{stamp}-{revision}-{os.getpid()}.json"
    return root / FOLDER / slug(record["device"]["fingerprint"]) / name


def slug(fingerprint: str) -> str:
    """Return a folder's name for a machine: readable, and distinct for distinct fingerprints."""
    words = re.sub(r"[^a-z0-9]+", "-", fingerprint.lower()).strip("-")[:60]
    return f"{words}-{hashlib.sha256(fingerprint.encode(errors='replace')).hexdigest()[:8]}"


def short_revision(revision: Optional[str]) -> str:
    """Return the first digits of a commit, with -dirty where files differed."""
    commit, _, rest = (revision or "").partition("-")
    return commit[:REVISION_LENGTH] + (f"-{rest}" if rest else "")


def read(root: Path, wanted: Callable[[str], bool], last: int) -> Tuple[List[Benchmark], List[str]]:
    """Return the wanted cases of the last runs of each machine, and what files are unusable."""
    benchmarks: List[Benchmark] = []
    notes: List[str] = []
    for folder in sorted(path for path in (root / FOLDER).glob("*") if path.is_dir()):
        # Names begin with the time.
        for path in sorted(folder.glob("*.json"))[-last:]:
            try:
                benchmarks += store.load_document(path, wanted)["benchmarks"]
            except BaselineError as error:
                notes.append(f"left out: {error}")
    return benchmarks, notes


def trends_of(benchmarks: Sequence[Benchmark]) -> List[Trend]:
    """Return the trends, by machine and case; equal configuration and device form one."""
    groups: Dict[Key, List[Benchmark]] = {}
    for benchmark in benchmarks:
        groups.setdefault(key_of(benchmark), []).append(benchmark)
    found = []
    for key, runs in groups.items():
        runs.sort(key=lambda run: str(record_of(run)["time"]))
        unit = record_of(runs[-1])["throughput"]["unit"]
        found.append(Trend(key, unit, tuple(map(_point, runs))))
    return sorted(found, key=lambda trend: (trend.key.fingerprint, trend.key))


def _point(benchmark: Benchmark) -> Point:
    record = record_of(benchmark)
    processes = processes_of(benchmark)
    rates = [float(p["items_per_round"]) / median(p["seconds"]) for p in processes]
    return Point(record["time"], short_revision(record.get("git")), median(rates), len(processes))


def level_change(trend: Trend, changes: Sequence[int], number: int) -> float:
    """Return the relative change of level at a change point: medians of the runs on both sides."""
    edges = [0, *changes, len(trend.points)]
    before, here, after = edges[number : number + 3]
    rates = [point.throughput for point in trend.points]
    return median(rates[here:after]) / median(rates[before:here]) - 1


def as_dict(trend: Trend, changes: Sequence[int]) -> Dict[str, Any]:
    """Return a trend as JSON values."""
    return {
        "case": trend.key.nodeid,
        "config_hash": trend.key.config_hash,
        "machine": trend.key.fingerprint,
        "unit": trend.unit,
        "runs": [dataclasses.asdict(point) for point in trend.points],
        "changes": [
            {
                "run": index,
                "time": trend.points[index].time,
                "revision": trend.points[index].revision,
                "change": level_change(trend, changes, number),
            }
            for number, index in enumerate(changes)
        ],
    }
