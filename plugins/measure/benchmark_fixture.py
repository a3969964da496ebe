"""pytest-benchmark's fixture ``benchmark``, in whose place this one stands."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from ipubench.fixtures.case.cases import case_key


@pytest.fixture
def benchmark(benchmark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """pytest-benchmark's own; what a test measures with it is recorded as a case."""
    if benchmark.disabled and case_key not in request.node.stash:
        yield benchmark
        return
    from ipubench.plugins.measure.benchmark_cases import measured

    yield from measured(benchmark, request)
