"""Settings of pytest-benchmark that a test or its project has, in the pairs of a comparison."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.plugins.measure.benchmark_cases import Measuring
from ipubench.plugins.measure.meter import Meter
from ipubench.plugins.measure.served import ServedMeter


@pytest.mark.parametrize(
    ("kind", "only_length", "measured_by"),
    [
        (ServedMeter, True, "our meter"),
        (ServedMeter, False, "pytest-benchmark"),
        (Meter, True, "pytest-benchmark"),
    ],
)
def test_a_pair_decides_itself_how_long_it_measures(
    kind: Any, only_length: bool, measured_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as ``--benchmark-warmup=true``, which a project may have in its addopts."""
    by: List[str] = []
    monkeypatch.setattr(Measuring, "_by_meter", lambda *_: by.append("our meter"))
    monkeypatch.setattr(Measuring, "by_pytest_benchmark", lambda *_: by.append("pytest-benchmark"))
    work = Measuring(kind.__new__(kind), has_settings=True, only_length=only_length)
    benchmark: Any = SimpleNamespace(by_pytest_benchmark=print)
    work.measure(benchmark, lambda: None)
    assert by == [measured_by]
