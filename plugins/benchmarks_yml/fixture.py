"""The ``command_meter`` fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ipubench.fixtures.case.cases import Case
    from ipubench.fixtures.devices.base import Device
    from ipubench.plugins.benchmarks_yml.meter import CommandMeter
    from ipubench.plugins.record.structs import Facts


@pytest.fixture
def command_meter(
    request: pytest.FixtureRequest,
    benchmark: Any,
    ipubench_case: Case,
    ipubench_device: Device,
    ipubench_conditions: Facts,
) -> CommandMeter:
    """Measures the command of one case."""
    from ipubench.plugins.benchmarks_yml.meter import CommandMeter
    from ipubench.plugins.measure.base import CaseRun

    device, conditions = ipubench_device, ipubench_conditions
    return CommandMeter(CaseRun(request.node, ipubench_case, benchmark, device, conditions))
