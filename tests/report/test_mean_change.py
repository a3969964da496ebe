"""The geometric mean of a suite's changes."""

from __future__ import annotations

from typing import Optional

import pytest

from ipubench.plugins.record.verdict import Verdict
from ipubench.plugins.report.mean_change import MeanChange
from tests.support.harness import Project


def changed(
    change: Optional[float] = None, low: Optional[float] = None, high: Optional[float] = None
) -> Verdict:
    return Verdict("pass", change=change, low=low, high=high)


def test_the_mean_is_geometric_and_its_interval_narrows_with_the_cases() -> None:
    """Half and double cancel; of four intervals of a factor of 1.1 the mean's is half as wide."""
    wide = [changed(ratio - 1, ratio / 1.1 - 1, ratio * 1.1 - 1) for ratio in (0.5, 2.0, 0.8, 1.25)]
    found = MeanChange.of([*wide, changed(), changed(0.3)])
    assert found is not None and found.cases == 4
    assert found.change == pytest.approx(0, abs=1e-12)
    assert (1 + found.low, 1 + found.high) == pytest.approx((1.1**-0.5, 1.1**0.5))


def test_an_interval_keeps_its_longer_side() -> None:
    one = changed(0.0, -0.19, 0.1)
    found = MeanChange.of([one] * 9)
    assert found is not None
    assert (1 + found.low, 1 + found.high) == pytest.approx((0.81 ** (1 / 3), 1.1 ** (1 / 3)))


def test_two_cases_have_none() -> None:
    assert MeanChange.of([changed(0.1, 0.0, 0.2)] * 2) is None


@pytest.mark.slow
def test_a_compared_run_shows_it(project: Project) -> None:
    project.run("-k", "alpha", "--baseline-save=main", "--processes=1").assert_code(0)
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "1.25"}
    words = ("-k", "alpha", "--baseline=main")
    outcome = project.run(*words, "--report=out", env=slow).assert_code(0)
    line = outcome.line("geometric mean of ").strip()
    assert float(line.split(": ")[1].split("%")[0]) == pytest.approx(-20, abs=1)
    assert line.capitalize() in (project.folder / "out" / "report.html").read_text()
