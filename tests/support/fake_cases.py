"""Cases on the fake device. Tests copy this file to a project as bench_fake.py."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, Tuple

from ipubench.fixtures.case.cases import Sweep, cases
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.runtimes.model_cache import ModelCache, options_of
from tests.support.fake_runtime import FakeStep

TROUBLES = ("none", "error", "raise", "kill", "memory", "greed")


@dataclass(frozen=True)
class Fake(CaseConfig):
    """Work that takes a known time."""

    batch_size: int = option(8, "items per batch", minimum=1)
    batch_seconds: float = option(0.01, "seconds per batch", minimum=0)
    noise: float = option(0.0, "relative noise of a call", minimum=0)
    flavour: str = option("plain", "nothing", choices=("plain", "sour", "sweet"))
    layers: Tuple[str, ...] = option((), "words")
    flag: bool = option(False, "nothing")
    half_partial: bool = option(False, "nothing here", ipu_only=True)
    flops: float = option(0.0, "FLOP per item", minimum=0)
    peak: float = option(0.0, "FLOP/s of the device", minimum=0)
    loader_seconds: float = option(0.0, "seconds to load a batch", minimum=0)
    requests: int = option(0, "batches of a round; 0: calibrated", minimum=0)
    model_cache_path: str = option("", "folder of compiled models", same_case=True, same_model=True)
    compile_only: bool = option(
        False, "compile, and neither run nor measure", same_case=True, same_model=True
    )
    trouble: str = option("none", "what goes wrong", choices=TROUBLES)

    def check(self) -> None:
        super().check()
        if self.flavour == "sour" and self.flag:
            raise ValueError("flavour sour and flag exclude each other")


@dataclass(frozen=True)
class Other(CaseConfig):
    """A configuration with fewer options."""

    micro_batch_size: int = option(1, "items per batch", minimum=1)


@cases(
    Sweep(Fake(name="alpha"), "batch_size", (1, 4, 8)),
    Fake(name="beta", batch_seconds=0.002),
    data=("synthetic", "generated"),
)
@cases(Fake(name="gamma", system="pod4"), mode=("inference", "training"))
def bench_fake(config: Fake, device: Any, meter: Any) -> None:
    if config.trouble == "error":
        raise CaseError("the fake is broken on purpose; mend it")
    if config.trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.trouble == "raise":
        raise RuntimeError("an unforeseen error")
    if config.trouble == "memory":
        raise MemoryError("Unable to allocate 7.28 TiB for an array")
    if config.trouble == "greed":
        bytearray(4 << 30)  # which is never touched
    kept = config.model_cache_path
    feed = ArrayFeed(config.data, ())
    step = FakeStep(
        device,
        feed,
        config.batch_seconds,
        config.noise,
        first_seconds=0.5,
        peak=config.peak or None,
        loader_seconds=config.loader_seconds,
        requests=config.requests,
        cache=ModelCache(kept, options_of(config), ".txt") if kept else None,
    )
    meter(step, items=config.batch_size, unit="items", flops=config.flops or None)


@cases(Other(name="delta", precision="32.32"))
def bench_other(config: Other, device: Any, meter: Any) -> None:
    feed = ArrayFeed(config.data, ())
    meter(FakeStep(device, feed, 0.01), items=config.micro_batch_size, unit="items")
