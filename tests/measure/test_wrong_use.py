"""Bench functions that misuse the meter."""

from __future__ import annotations

import asyncio
import time

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.call import CallStep
from ipubench.fixtures.runtimes.declared import check
from ipubench.fixtures.runtimes.step import BatchWork, ReferenceJobs
from tests.support.harness import Project, run_pytest
from tests.support.own_project import OwnProject
from tests.support.reader import DOCS

FILE = """
import numpy
import pytest

from ipubench.fixtures.data.feeds import ArrayFeed
from tests.support.fake_runtime import FakeStep


def step(device):
    return FakeStep(device, ArrayFeed("synthetic", ()), 0.01)


WRONG = [{"items": 0}, {"items": -1}, {"items": float("nan")}, {"items": "few"}, {"flops": -1.0}]
WRONG += [{"unit": ""}, {"unit": "a\\n"}, {"unit": 1}, {"items": 1e21}, {"items": 1e-21}]


@pytest.mark.parametrize("said", WRONG, ids=map(str, range(10)))
def bench_wrong(device, meter, said):
    meter(step(device), **said)


def bench_numpy(device, meter):
    meter(step(device), items=numpy.float32(2), flops=numpy.float32(0))


def bench_twice(device, meter):
    meter(step(device))
    meter(step(device))


def bench_called(meter):
    meter(sum([1]))
"""


def test_invalid_amounts_and_a_second_call(project: Project) -> None:
    (project.folder / "bench_wrong.py").write_text(FILE)
    words = ("bench_wrong.py", "--device=fake")
    outcome = run_pytest(project.folder, project.environment, *words).assert_code(1)
    for said in ("items=0)", "items=nan)", "items='few')", "flops=-1.0)", "unit='')", "unit=1)"):
        outcome.line(f"meter(..., {said}: ")
    outcome.line("bench_wrong.py::bench_twice: meter ")
    outcome.line("a value of type int")
    outcome.line("12 failed, 1 passed in")  # and no warning about an unused benchmark
    assert project.records()["bench_numpy"]["items_per_round"] == 20


@pytest.mark.parametrize(
    "name, value",
    [
        ("feed", object()),
        ("rounds", 5),
        ("clock", time.perf_counter),
        ("latencies", [0.1]),
        ("reference", lambda: ReferenceJobs()),
        ("reference", ReferenceJobs(canary=1)),  # type: ignore[arg-type]
        ("work", BatchWork(flops_per_item=1e9)),  # type: ignore[arg-type]
    ],
    ids=range(7),
)
def test_an_attribute_of_another_kind_than_declared(name: str, value: object) -> None:
    step = CallStep(list)
    check(step)
    setattr(step, name, value)
    with pytest.raises(CaseError, match=f"CallStep: {name}"):
        check(step)


STEPS = """
import numpy
import pytest

from ipubench import ReferenceJobs
from ipubench.fixtures.data.feeds import ArrayFeed
from tests.support.fake_runtime import FakeStep


class NoPrecision(FakeStep):
    def describe(self):
        return {}


class Compiles(FakeStep):
    def compile(self):
        pass


class Finishes(FakeStep):
    def finish(self):
        return {"loss": 1.0}


class Counts(FakeStep):
    def counters(self):
        return {"loss": numpy.float32(1)}


class Canary(FakeStep):
    def __init__(self, *given):
        super().__init__(*given)
        self.reference = ReferenceJobs(canary=lambda: None)


class Reports(FakeStep):
    def latencies(self):
        return [0.5]


@pytest.mark.parametrize("kind", [NoPrecision, Compiles, Finishes, Counts, Canary, Reports])
def bench_step(device, meter, kind):
    meter(kind(device, ArrayFeed("synthetic", ()), 0.01))


def bench_class(meter):
    meter(FakeStep)
"""


def test_a_step_of_ones_own_that_returns_another_kind_than_declared(project: Project) -> None:
    (project.folder / "bench_steps.py").write_text(STEPS)
    outcome = run_pytest(
        project.folder, project.environment, "bench_steps.py", "--device=fake"
    ).assert_code(1)
    for name in ("NoPrecision: describe()", "Compiles: compile()", "Finishes: finish()"):
        outcome.line(f"{name} returned ")
    outcome.line("Canary: reference.canary() returned None")
    outcome.line("numpy.float32")
    outcome.line("the class FakeStep")
    outcome.line("6 failed, 1 passed in")
    assert "plugins/measure" not in outcome.text
    # A step that reports no latencies of the rounds is timed.
    latency = project.records()["bench_step-Reports"]["latency"]
    assert latency["p50_ms"] == pytest.approx(10)


def test_the_step_of_the_page_of_public_names(own: OwnProject) -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    (own.folder / "tests" / "test_step.py").write_text(page.split("```python")[1].split("```")[0])
    own.run("tests/test_step.py", "--budget=0.1").assert_code(0)
    assert own.records()["test_sum"]["extra_info"]["ipubench"]["compile"] == "none"


async def fetch() -> None:
    await asyncio.sleep(0)


def test_a_callable_with_an_unawaited_coroutine_is_refused() -> None:
    step = CallStep(lambda: fetch())
    step.build()
    step()
    with pytest.raises(CaseError, match="a coroutine"):
        step.finish()
    step.result.close()
    awaited = CallStep(fetch)
    awaited.build()
    awaited()
    assert awaited.finish().facts == {}
    awaited.close()


BROKEN = """
def parse(text):
    return int(text)


def test_benchmark(benchmark):
    benchmark(parse, "x")


def test_meter(meter):
    meter(lambda: parse("x"))
"""


def test_an_error_in_a_measured_callable_shows_no_frame_of_ours(own: OwnProject) -> None:
    (own.folder / "tests" / "test_broken.py").write_text(BROKEN)
    words = ("tests/test_broken.py", "--budget=0.1")
    text = own.run(*words).assert_code(1).text
    assert "invalid literal for int()" in text and "return int(text)" in text
    assert "plugins/measure" not in text and "fixtures/runtimes" not in text
    assert "plugins/measure" in own.run(*words, "--full-trace").assert_code(1).text
