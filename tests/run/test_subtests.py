"""A subtest that fails lets its test go on, and fails the case."""

from __future__ import annotations

import pytest

from tests.support.harness import Project, run_pytest

SUBTESTS = """
import unittest

import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.runtimes.fake import FakeStep


def step(device):
    return FakeStep(device, ArrayFeed("synthetic", ()), 0.01)


def bench_parts(device, meter, subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert number != 1, "one is wrong"
    meter(step(device))


class BenchParts(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def given(self, device, meter):
        self.device, self.meter = device, meter

    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1, "one is wrong")
        self.meter(step(self.device))
"""


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest has subtests from 9 on")
def test_a_case_of_which_a_subtest_fails_fails(project: Project) -> None:
    (project.folder / "bench_parts.py").write_text(SUBTESTS)
    words = ("bench_parts.py", "--device=fake", "--baseline-save=main", "--processes=3")
    outcome = run_pytest(project.folder, project.environment, *words).assert_code(1)
    shown = [line for line in outcome.lines if "/2] " in line]
    assert len(shown) == 2 and all("FAILED" in line for line in shown), outcome.text
    found = [line for line in project.journal() if line["type"] == "outcome"]
    assert [one["outcome"] for one in found] == ["failed", "failed"]
    for one in found:
        assert one["why"].startswith("1 subtest has failed: ") and "one is wrong" in one["why"]
    assert not (project.folder / "baselines").exists()
