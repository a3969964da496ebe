"""Measures the device's ceilings, and compares a case's rate of computation with them.

A ceiling is the rate of a matrix product or of a copy. It is measured once per machine and kept on
disk. If a case seems to exceed it, it is measured again.
"""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from ipubench.fixtures.case.untrusted import read_json
from ipubench.fixtures.runtimes.declared import described
from ipubench.fixtures.runtimes.step import BatchWork, Step, Work, ask
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.measure.rounds import best_rate
from ipubench.plugins.record.files import write_json
from ipubench.plugins.record.structs import Compute

Clock = Callable[[], float]
MakeWork = Callable[[], Work]
#: How often a ceiling is measured, while others disturb it, before a case counts as implausible.
TRIES = 4
#: A case that claims more than this share of the measured peak did not do its work.
LARGEST_CREDIBLE_SHARE = 1.25
#: The share of a matrix product's rate that networks usually reach.
USUAL_SHARE_OF_PEAK = 0.3


class Peaks:
    """The highest measured rates of devices with one fingerprint, by name.

    A later measurement may raise a ceiling but never lowers it. Only measurements that other
    programs did not disturb are kept on disk.
    """

    def __init__(
        self,
        path: Optional[Path],
        fingerprint: str,
        clock: Clock,
        watch: Callable[[], Disturbance] = lambda: Disturbance(None),
    ) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.clock = clock
        self._watch = watch
        self._session: Dict[str, float] = {}

    def get(self, name: str, make_work: MakeWork) -> Optional[float]:
        """Return the ceiling; measure it if none is kept. None if it cannot be measured."""
        if name not in self._session:
            kept = self._read().get(self.fingerprint, {}).get(name)
            if kept is None:
                self._measure(name, make_work)
            else:
                self._session[name] = kept
        return self._session.get(name)

    def _measure(self, name: str, make_work: MakeWork) -> bool:
        """Measure a ceiling; return whether it was undisturbed."""
        work = make_work()
        watching = self._watch()
        watching.read()
        rate = best_rate(work, self.clock)
        watching.read()
        alone = bool(watching.clean([0.0]))
        if math.isfinite(rate):
            self._session[name] = max(rate, self._session.get(name, 0.0))
            if alone:
                self._keep(name)
        return alone

    def undisturbed(self, name: str, make_work: MakeWork) -> bool:
        """Measure a ceiling until it is undisturbed; return False after too many tries."""
        return any(self._measure(name, make_work) for _ in range(TRIES))

    def _keep(self, name: str) -> None:
        known = self._read()
        device = known.setdefault(self.fingerprint, {})
        rate = self._session[name] = max(self._session[name], device.get(name, 0.0))
        if self.path is not None and rate != device.get(name):
            device[name] = rate
            # Without the file, the value still serves this session.
            with contextlib.suppress(OSError):
                write_json(self.path, known)

    def _read(self) -> Dict[str, Dict[str, float]]:
        if self.path is None:
            return {}
        try:
            known = read_json(self.path)
        except OSError:
            return {}
        return {
            device: {name: rate for name, rate in rates.items() if _is_rate(rate)}
            for device, rates in (known.items() if isinstance(known, dict) else ())
            if isinstance(rates, dict)
        }


def _is_rate(value: object) -> bool:
    return isinstance(value, float) and value > 0


def ceilings(peaks: Peaks, step: Step) -> Tuple[Optional[float], Optional[float]]:
    """Return FLOP/s of a matrix product at the step's precision, and bytes/s of a copy.

    None if the step has no such job, also if another step's is kept, or if several hosts run it.
    """
    if step.on_several_hosts:
        return None, None
    jobs = step.reference
    product = None if jobs.peak is None else peaks.get(_product(step), jobs.peak)
    return product, None if jobs.copy is None else peaks.get("copy", jobs.copy)


def usual_rate(peaks: Peaks, step: Step) -> Optional[float]:
    """Return the FLOP/s that a network usually reaches; None without a peak."""
    peak, _ = ceilings(peaks, step)
    return None if peak is None else USUAL_SHARE_OF_PEAK * peak


def counted_flops(work: BatchWork, items: float) -> Optional[float]:
    """Return the FLOP of an item that a step counts; None if it counts none."""
    found = ask(work.flops_per_item)
    if found is None:
        batch = ask(work.flops_per_batch)
        found = None if batch is None else batch / items
    return found


def takes_long(
    peaks: Peaks, step: Step, flops: Optional[float], items: float, seconds: float
) -> bool:
    """Return whether the FLOP of a call usually take at least ``seconds``.

    ``flops``: per item; None: the step counts them. ``items``: of a batch.
    """
    rate = usual_rate(peaks, step)
    if rate is None:  # before FLOP are counted, which may trace a network
        return False
    if flops is None:
        flops = counted_flops(step.work, items)
    return flops is not None and flops * items * step.batches_per_step >= seconds * rate


def describe_compute(
    peaks: Peaks, step: Step, flops: Optional[float], rate: float, items: float
) -> Tuple[Compute, bool]:
    """Return the compute part of a record, and whether that much work is implausible.

    ``flops``: per item; None: the step counts them. ``rate``: in items/s. ``items``: of a batch.
    The peak is measured again if the rate is above it. The record has no peak if the work seems
    implausible and all its measurements were disturbed.
    """
    if flops is None:
        flops = counted_flops(step.work, items)
    peak, copy = ceilings(peaks, step)
    if flops is None:
        return Compute(copy_peak_bytes_per_s=copy), False
    achieved = flops * rate
    certain, product = True, step.reference.peak
    if product is not None and peak is not None and achieved > peak:
        # An earlier measurement may have been slowed down: measure beside the case.
        certain = peaks.undisturbed(_product(step), product)
        peak = peaks.get(_product(step), product)
    implausible = step.work.exact and not _credible(achieved, peak)
    if implausible and not certain:
        # Others slowed the matrix product down, so the device can do more.
        peak = None
    moved = ask(step.work.weight_traffic)
    compute = Compute(
        copy_peak_bytes_per_s=copy,
        flops_per_item=flops,
        achieved=achieved,
        peak=peak,
        share=achieved / peak if peak else None,
        weight_bytes_per_item=None if moved is None else moved / items,
        peak_disturbed=implausible and not certain,
    )
    return compute, implausible and certain


def _credible(achieved: float, peak: Optional[float]) -> bool:
    """Return whether a device with this peak can have done that much work."""
    return not peak or achieved <= LARGEST_CREDIBLE_SHARE * peak


def _product(step: Step) -> str:
    return f"matmul {described(step)['precision']}"
