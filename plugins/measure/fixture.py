"""Fixtures for a bench function's meter. Each imports what it needs when it is used."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Iterator

import pytest

from ipubench.fixtures.command_line import options_of

if TYPE_CHECKING:
    from ipubench.fixtures.case.cases import Case
    from ipubench.fixtures.devices.base import Device
    from ipubench.plugins.measure.base import StepMeter
    from ipubench.plugins.measure.peaks import Peaks
    from ipubench.plugins.record.structs import Facts


@pytest.fixture(scope="session")
def ipubench_conditions(request: pytest.FixtureRequest, ipubench_device: Device) -> Facts:
    """Tune this process for measuring on its device; return the conditions for the record."""
    from ipubench.plugins.run.conditions import apply_conditions

    option = options_of(request.config)
    return apply_conditions(ipubench_device.kind, option.affinity, option.allocator)


@pytest.fixture(scope="session")
def ipubench_peaks(request: pytest.FixtureRequest, ipubench_device: Device) -> Peaks:
    """Return the ceilings of this session's device; without a cache folder they are not kept."""
    from ipubench.fixtures.case.errors import CaseError
    from ipubench.fixtures.data.cache import cache_dir
    from ipubench.plugins.measure.disturbance import Disturbance
    from ipubench.plugins.measure.peaks import Peaks

    device = ipubench_device
    try:
        path = cache_dir() / "peaks.json"
    except CaseError:
        path = None
    return Peaks(path, device.info.fingerprint, device.clock, partial(Disturbance.of, device))


@pytest.fixture
def meter(
    request: pytest.FixtureRequest,
    benchmark: Any,
    ipubench_case: Case,
    ipubench_device: Device,
    ipubench_conditions: Facts,
    ipubench_peaks: Peaks,
) -> Iterator[StepMeter]:
    """Yield the meter of a case; close its step whatever happens."""
    from ipubench.plugins.measure.base import CaseRun
    from ipubench.plugins.measure.choose import meter_of

    case_run = CaseRun(request.node, ipubench_case, benchmark, ipubench_device, ipubench_conditions)
    measuring = meter_of(case_run, lambda: ipubench_peaks)
    try:
        yield measuring
    finally:
        measuring.end()
