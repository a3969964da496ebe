"""Chooses the meter for a case. A run imports what it uses."""

from __future__ import annotations

from typing import Callable

from ipubench.fixtures.command_line import options_of
from ipubench.plugins.measure.base import CaseRun, StepMeter
from ipubench.plugins.measure.inspection import CompileMeter, ProfileMeter
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.measure.peaks import Peaks
from ipubench.plugins.measure.settled import SettledMeter


def meter_of(case_run: CaseRun, peaks: Callable[[], Peaks]) -> StepMeter:
    """Return the meter that this session uses for a case."""
    config, instance = case_run.item.config, case_run.run.instance
    if instance is not None and instance.alternates:
        from ipubench.plugins.measure.served import ServedMeter

        return ServedMeter(case_run, peaks(), instance)
    if instance is not None:
        from ipubench.plugins.measure.instance import InstanceMeter

        return InstanceMeter(case_run, instance)
    if options_of(config).counting is not None:
        from ipubench.plugins.measure.count_meters import CountMeter

        return CountMeter(case_run)
    if options_of(config).profile is not None:
        return ProfileMeter(case_run)
    if getattr(case_run.case.config, "compile_only", False):
        return CompileMeter(case_run)
    if case_run.fullname in case_run.run.settled:
        return SettledMeter(case_run)
    counting = case_run.run.counting
    if counting is not None and counting.alone:
        from ipubench.plugins.measure.count_meters import OnceMeter

        return OnceMeter(case_run)
    return Meter(case_run, peaks())
