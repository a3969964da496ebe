"""The fixtures that hand a bench function its meter."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.cache import cache_dir
from ipubench.fixtures.devices.base import Device
from ipubench.plugins.measure.alternating import AlternatingMeter
from ipubench.plugins.measure.base import CaseRun, StepMeter
from ipubench.plugins.measure.disturbance import Disturbance
from ipubench.plugins.measure.instance import InstanceMeter, member_key
from ipubench.plugins.measure.looking_inside import CompileMeter, ProfileMeter
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.run.conditions import apply_conditions


@pytest.fixture(scope="session")
def ipubench_conditions(request: pytest.FixtureRequest, ipubench_device: Device) -> Dict[str, Any]:
    """Tune this process for measuring on its device; return what holds, for the record."""
    option = request.config.option
    return apply_conditions(ipubench_device.kind, option.affinity, option.allocator)


@pytest.fixture(scope="session")
def ipubench_peaks(request: pytest.FixtureRequest, ipubench_device: Device) -> Peaks:
    """The ceilings of this session's device; they serve it alone where there is no cache."""
    device = ipubench_device
    try:
        path: Optional[Path] = cache_dir() / "peaks.json"
    except CaseError:
        path = None
    return Peaks(path, device.info.fingerprint, device.clock, partial(Disturbance.of, device))


@pytest.fixture
def meter(
    request: pytest.FixtureRequest,
    benchmark: Any,
    ipubench_case: Case,
    ipubench_device: Device,
    ipubench_conditions: Dict[str, Any],
    ipubench_peaks: Peaks,
) -> Iterator[StepMeter]:
    """Measures one step; closes it whatever happens. In an instance: obeys who measures."""
    case_run = CaseRun(request.node, ipubench_case, benchmark, ipubench_device, ipubench_conditions)
    measuring = meter_of(case_run, lambda: ipubench_peaks)
    try:
        yield measuring
    finally:
        measuring.end()


def meter_of(case_run: CaseRun, peaks: Callable[[], Peaks]) -> StepMeter:
    """Return the meter for what this session does with a case."""
    config = case_run.item.config
    member = config.stash.get(member_key, None)
    if member is not None and member.alternates:
        return AlternatingMeter(case_run, peaks(), member)
    if member is not None:
        return InstanceMeter(case_run, member)
    if config.option.profile is not None:
        return ProfileMeter(case_run)
    if getattr(case_run.case.config, "compile_only", False):
        return CompileMeter(case_run)
    return Meter(case_run, peaks())
