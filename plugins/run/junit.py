"""Adds results to JUnit's XML."""

from __future__ import annotations

import pytest

from ipubench.plugins.gate.shown_throughput import shown_throughput
from ipubench.plugins.run.recording import Recording


def add_properties(run: Recording, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Add a case's results to --junitxml, as properties of its test case."""
    # JUnit uses the properties in the last phase's report.
    if call.when == "teardown" and item.nodeid in run.results.benchmarks:
        verdict = run.results.verdicts.get(item.nodeid)
        throughput = shown_throughput(run.results.with_fresh(item.nodeid), verdict)
        item.user_properties += [
            ("throughput", throughput.median),
            ("unit", throughput.unit),
        ]
        if verdict is not None:
            item.user_properties.append(("verdict", verdict.kind))
        if verdict is not None and verdict.change is not None:
            item.user_properties.append(("change", verdict.change))
