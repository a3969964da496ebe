"""A case in several processes that works on a real CPU. Tests copy this file as bench_together.py.

Each process writes its notes to a file in the folder that TOGETHER names.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.instances.plan import rank
from ipubench.fixtures.instances.protocol import LAUNCHER_VARIABLE
from ipubench.fixtures.poplar.poplar_options import ENGINE_OPTIONS
from ipubench.fixtures.runtimes.model_cache import ModelCache
from ipubench.fixtures.runtimes.step import BatchWork, ReferenceJobs, Step

TROUBLES = ("none", "error", "raise", "kill", "late_error")


@dataclass(frozen=True)
class Together(CaseConfig):
    """Hashing, which keeps one core busy."""

    batch_size: int = option(8, "items per batch", minimum=1)
    instances: int = option(2, "processes", minimum=1)
    trouble: str = option("none", "what goes wrong in the second instance", choices=TROUBLES)
    shards: int = option(1, "IPUs of one copy", minimum=1)
    replicas: int = option(1, "copies of the model", minimum=1)
    model_cache_path: str = option("", "folder of compiled models", same_case=True)


class HashStep(Step):
    """Hashes; records when each call began and ended, on the clock that all processes share."""

    reference = ReferenceJobs(lambda: lambda: None)
    work = BatchWork(flops_per_item=lambda: 2.0, weight_traffic=lambda: 12.0)
    latency_source = "the hash"
    not_compiled = "none"

    def __init__(self, config: Together, device: Any) -> None:
        self.config = config
        self.feed = ArrayFeed(config.data, ())
        self.rank = rank(os.environ.get(LAUNCHER_VARIABLE, ""), os.environ)
        self.model_cache = None
        if config.model_cache_path:
            self.model_cache = ModelCache(config.model_cache_path, {}, ".txt")
        self.notes: Dict[str, Any] = {
            "pid": os.getpid(),
            "threads": device.threads,
            "affinity": sorted(os.sched_getaffinity(0)),
            "calls": [],
        }

    @property
    def trouble(self) -> str:
        return self.config.trouble if self.rank == 1 else "none"

    def build(self) -> None:
        # Poplar reads it when it builds an engine.
        self.notes["engine_options"] = os.environ.get(ENGINE_OPTIONS)
        if self.trouble == "error":
            raise CaseError("the hash is broken on purpose; mend it")
        if self.trouble == "raise":
            raise RuntimeError("an unforeseen error")

    def compile(self) -> bool:
        if self.model_cache is not None:
            self.model_cache.load(Path.read_text)
        return False

    def prepare_rounds(self, tell: Callable[[str], None]) -> None:
        self.notes["before_rounds"] = len(self.notes["calls"])

    def __call__(self) -> None:
        calls: List[List[float]] = self.notes["calls"]
        if len(calls) == 3 and self.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if len(calls) == 3 and self.trouble == "late_error":
            raise CaseError("the hash broke in mid-run")
        start = time.monotonic()
        for _ in range(self.batches_per_step):
            hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2000)
        calls.append([start, time.monotonic()])

    def describe(self) -> Dict[str, Any]:
        return {"precision": "float32", "rank": self.rank}

    def latencies(self) -> Optional[List[float]]:
        return [end - start for start, end in self.notes["calls"]]

    def close(self) -> None:
        folder = os.environ.get("TOGETHER")
        if folder and self.rank is not None:
            Path(folder, f"{self.rank}.json").write_text(json.dumps(self.notes), encoding="utf-8")


@cases(Together(name="hash"))
@cases(Together(name="hash", system="pod16", shards=4, replicas=4, instances=4))
def bench_together(config: Together, device: Any, instances: Any, meter: Any) -> None:
    if config.trouble == "error" and config.batch_size == 1:
        raise CaseError("not even begun")
    meter(instances(HashStep(config, device)), items=config.batch_size, unit="items")
