"""Replaces pytest-benchmark's fixture ``benchmark``."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from ipubench.fixtures.case.cases import case_key


@pytest.fixture
def benchmark(benchmark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return pytest-benchmark's fixture; record what a test measures with it as a case."""
    if benchmark.disabled and case_key not in request.node.stash:
        yield benchmark
        return
    from ipubench.plugins.measure.benchmark_cases import measured

    yield from measured(benchmark, request)
