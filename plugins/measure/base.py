"""What the meters share: building and closing the step, and writing the record.

plugins/compare judges the result later. It finds it in the test's state.
"""

from __future__ import annotations

import contextlib
import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Awaitable,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import pytest
from msgspec.structs import replace

from ipubench.fixtures.case.cases import Case, config_hash, effective_options
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import plain_options
from ipubench.fixtures.command_line import options_of
from ipubench.fixtures.devices.base import Device
from ipubench.fixtures.machine.frames import left_out
from ipubench.fixtures.runtimes import declared
from ipubench.fixtures.runtimes.call import CallStep
from ipubench.fixtures.runtimes.step import Step
from ipubench.fixtures.runtimes.surrounded import Around
from ipubench.plugins.command_line.arguments import worker_count
from ipubench.plugins.measure.disturbance import wait_for_quiet
from ipubench.plugins.measure.rounds import timed
from ipubench.plugins.measure.watched import Watched
from ipubench.plugins.record import host_process, pytest_benchmark_adapter, structs
from ipubench.plugins.record.files import storable
from ipubench.plugins.record.record import LEAST_AMOUNT, MOST_AMOUNT
from ipubench.plugins.record.statistics import throughput
from ipubench.plugins.record.structs import (
    Benchmark,
    Canary,
    Contention,
    Energy,
    Facts,
    Latency,
    Memory,
    Quiet,
    Record,
    Rounds,
    Spec,
)
from ipubench.plugins.record.text import percent, time_stamp
from ipubench.plugins.record.verdict import known
from ipubench.plugins.results.lines import CaseLine, ExtraLine
from ipubench.plugins.selection.selected import framework_of
from ipubench.plugins.state import Run, run_of

if TYPE_CHECKING:
    from ipubench.fixtures.runtimes.event_loop import InLoop

__tracebackhide__ = left_out

#: Why a record of :func:`timed_by_another` has no energy.
NOT_OURS = "another program times its rounds, so nothing shows when they ran"


class FirstFacts(NamedTuple):
    """The part of a record that is known before the case is built."""

    format: int
    name: str
    test: Optional[str]
    config: Facts
    overrides: Sequence[str]
    effective_options: Facts
    config_hash: str
    framework: Optional[str]
    device: structs.Device
    conditions: Facts
    workers: int
    versions: Mapping[str, str]
    git: Optional[str]
    time: str
    wait_for_quiet: Optional[Quiet]


@dataclass(frozen=True)
class CaseRun:
    """A case that runs in this process: its test, its device and the conditions."""

    item: pytest.Item
    case: Case
    benchmark: Any  # pytest-benchmark's fixture
    device: Device
    conditions: Facts
    #: Set if the test has several results: the name of this one.
    own_name: Optional[str] = None

    @property
    def run(self) -> Run:
        """The run of the case."""
        return run_of(self.item.config)

    @property
    def fullname(self) -> str:
        """Its name in the run: by default the node id of its test."""
        return self.own_name or self.item.nodeid

    def first_facts(self) -> FirstFacts:
        """Return what every record begins with: case, device, conditions, versions, time."""
        case, config = self.case, self.item.config
        info = self.device.info
        return FirstFacts(
            format=1,
            name=case.id,
            test=self.item.nodeid if self.fullname != self.item.nodeid else None,
            config=plain_options(case.config),
            overrides=sorted(case.overrides),
            effective_options=effective_options(case.config, case.overrides),
            config_hash=config_hash(case.config, case.overrides),
            framework=framework_of(self.item),
            device=structs.Device(info.kind, info.name, info.fingerprint, info.details),
            conditions=self.conditions,
            workers=worker_count(config),
            versions=host_process.versions(),
            git=host_process.git_revision(config.rootpath),
            time=time_stamp(),
            wait_for_quiet=state_of(self.item).quiet,
        )

    def wait_for_quiet(self) -> None:
        """With ``--wait-for-quiet``: wait until the machine is quiet, or the time is over."""
        run = self.run
        most, progress = options_of(run.config).wait_for_quiet, run.progress
        if most is None:
            return
        with run.spent.during("quiet"), run.bounds.lifted():
            found = wait_for_quiet(self.device, most, progress.phase)
        state_of(self.item).quiet = found
        if not found.quiet:
            progress.line(
                f"  {self.case.id}: measured on a machine that was not quiet within {most:g} s: "
                f"others used {percent(found.used_by_others, 0)} of its CPUs"
            )

    def phase(self, part: str, text: str) -> None:
        """Show what the case is doing now; count its time to a part."""
        self.run.spent.enter(part)
        self.run.progress.phase(text)

    def finish(self, record: Record, release: Callable[[], None]) -> None:
        """Write the record of the case, and add the measurement to the test's state.

        Fails the case if the result is implausible; the record is written all the same.
        """
        run, state = self.run, state_of(self.item)
        counter = self.device.counter
        if counter is not None and record.energy is None:
            record = replace(record, energy=Energy(counter.source, 0.0, unknown=NOT_OURS))
        record = replace(record, spent=run.spent.of_case())
        found = pytest_benchmark_adapter.finished(self.benchmark, record)
        found = replace(found, fullname=self.fullname)
        run.add(CaseLine(found))
        fail_where_implausible(record, f"; the record is in {run.path}")
        state.measured.append(Measured(found, release))
        state.recorded.append(self)
        if self.fullname != self.item.nodeid:
            state.names.append(self.fullname)

    def add_extra(self) -> None:
        """Record changes of ``extra_info`` since the record was written."""
        run = self.run
        now = storable(pytest_benchmark_adapter.noted(self.benchmark))
        if now != run.results.benchmarks[self.fullname].extra_info.others:
            run.add(ExtraLine(self.fullname, now))


@contextlib.contextmanager
def untraced() -> Iterator[bool]:
    """Suspend tracers and profilers of this thread, such as coverage: they would be measured too.

    Yields whether there was one.
    """
    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        yield tracer is not None or profiler is not None
    finally:
        sys.settrace(tracer)
        if profiler is not None and hasattr(profiler, "enable"):  # cProfile's is an object
            profiler.enable()
        else:
            sys.setprofile(profiler)


class StepMeter(ABC):
    """Runs the step that a bench function passes to it, and closes it."""

    def __init__(self, case_run: CaseRun) -> None:
        self.case_run = case_run
        self.item, self.case = case_run.item, case_run.case
        self.benchmark, self.device = case_run.benchmark, case_run.device
        self.config = self.item.config
        self._step: Optional[Step] = None
        self._called = False

    def __call__(
        self,
        step: Union[Step, Callable[[], Any]],
        *,
        items: float = 1.0,
        unit: str = "calls",
        flops: Optional[float] = None,
        latency_from_throughput: bool = False,
        setup: Around = None,
        teardown: Around = None,
    ) -> Optional[Awaitable[None]]:
        """Measure ``step``, which processes ``items`` of ``unit`` (a plural noun) per batch.

        A callable without arguments is a step too: each call is a batch. A coroutine function is
        awaited; if an event loop runs already, await what this returns.
        ``flops``: floating-point operations per item; None: the runtime counts them.
        ``latency_from_throughput``: do not measure latency separately, but compute it as items /
        throughput, like some tables of the original programs.
        ``setup`` and ``teardown`` run around each call of a callable, and are not timed. If
        ``setup`` returns ``(args, kwargs)``, both others are called with them.
        """
        if self._called:
            raise CaseError(
                f"{self.item.nodeid}: meter is called a second time, and a case has one result: "
                "write a test for each step, or parametrize this one"
            )
        self._called = True
        if isinstance(step, Step):
            if setup is not None or teardown is not None:
                raise CaseError(
                    f"{self.item.nodeid}: meter(..., setup=, teardown=) takes a callable, and "
                    f"{type(step).__name__} is a step: do this work in its own build() and close()"
                )
            declared.check(step)
            work = step
        else:
            work = CallStep(_callable(step), setup, teardown)
        wait = self.device.waiting()
        if isinstance(work, CallStep) and wait is not None:
            work.wait_by(wait)
        self._step = work
        facts = BatchFacts(
            _amount("items", items),
            _noun(unit),
            None if flops is None else _amount("flops", flops, or_zero=True),
            latency_from_throughput,
        )
        in_loop = work.use_running_loop() if isinstance(work, CallStep) else None
        if in_loop is not None:
            return self._work_in_thread(in_loop, work, facts)
        with untraced() as traced:
            self.work_on(work, facts)
        if traced and isinstance(work, CallStep):
            work.call_once()
        return None

    async def _work_in_thread(self, in_loop: InLoop, work: Step, facts: BatchFacts) -> None:
        with untraced() as traced:
            await in_loop.run_in_thread(partial(self.work_on, work, facts))
        if traced:
            await in_loop.run_in_thread(in_loop)

    @abstractmethod
    def work_on(self, step: Step, facts: BatchFacts) -> None:
        """Do this meter's work with the step, and close it if that went well."""

    def end(self) -> None:
        """Close the step at the end of the test, also after a failure."""
        self.close()
        if self._called:
            pytest_benchmark_adapter.count_as_used(self.benchmark)

    def close(self) -> None:
        """Close the step, once."""
        if self._step is not None:
            step, self._step = self._step, None
            step.close()

    def phase(self, part: str, text: str) -> None:
        """Show what the case is doing now; count its time to a part."""
        self.case_run.phase(part, text)

    def on_built(self, step: Step) -> None:
        """Make the decisions that the compiler needs."""

    def build(self, step: Step) -> Built:
        """Build and compile the step; return how long that took."""
        clock = self.device.clock
        self.phase("build", "building")
        build_seconds = timed(step.build, clock)
        self.on_built(step)
        self.phase("compile", "compiling")
        start = clock()
        compiled = step.compile()
        seconds = clock() - start
        declared.returned(step, "compile()", compiled, bool)
        cache = step.model_cache
        saved = None if cache is None else cache.note(seconds)
        if cache is None or not cache.hit:
            return Built(build_seconds, seconds, "fresh" if compiled else step.not_compiled)
        return Built(build_seconds, seconds, "cached", saved)


def _callable(step: Any) -> Callable[[], Any]:
    """Return the function that a bench function passed. Raises CaseError for anything else."""
    if isinstance(step, type) and issubclass(step, Step):
        raise CaseError(
            f"meter(...) was given the class {step.__name__} itself: give it a step, as in "
            f"meter({step.__name__}())"
        )
    if not callable(step):
        raise CaseError(
            f"meter(...) was given a value of type {type(step).__name__}, which cannot be called: "
            "give it the function itself, as in meter(lambda: parse(TEXT))"
        )
    function: Callable[[], Any] = step
    return function


def _amount(name: str, given: Any, or_zero: bool = False) -> float:
    """Check an amount that a bench function passed; return NumPy's types as a float."""
    try:
        amount = float(given)
    except (TypeError, ValueError, OverflowError):
        amount = math.nan
    if not (LEAST_AMOUNT <= amount <= MOST_AMOUNT or (or_zero and amount == 0)):
        what = f"{'0 or ' if or_zero else ''}a number from {LEAST_AMOUNT:g} to {MOST_AMOUNT:g}"
        raise CaseError(f"meter(..., {name}={given!r}): {name} has to be {what}")
    return given if isinstance(given, (int, float)) else amount


def _noun(unit: Any) -> str:
    """Return the unit that a bench function passed. Raises CaseError if it is not a noun."""
    if not (isinstance(unit, str) and unit.strip() and unit.isprintable()):
        raise CaseError(f"meter(..., unit={unit!r}): unit has to be a noun, as in unit='images'")
    return unit


@dataclass(frozen=True)
class BatchFacts:
    """A bench function's description of a batch, see :meth:`StepMeter.__call__`."""

    items: float
    unit: str
    flops: Optional[float]
    latency_from_throughput: bool


@dataclass(frozen=True)
class Built:
    """The time of building and compiling, and the origin of the compiled model."""

    build_seconds: float
    compile_seconds: float
    compile: str  # fresh, reused or cached
    saved_seconds: Optional[float] = None  # with a folder of compiled models


@dataclass(frozen=True)
class Measured:
    """A measured case: its benchmark.

    ``release`` frees what a fresh process needs to measure the case again.
    """

    benchmark: Benchmark
    release: Callable[[], None]


@dataclass
class CaseState:
    """The measurements of a test so far."""

    #: Not judged yet.
    measured: List[Measured] = field(default_factory=list)
    #: The cases that it has recorded, and the names of those that differ from the test's.
    recorded: List[CaseRun] = field(default_factory=list)
    names: List[str] = field(default_factory=list)
    #: Measurements of pytest-benchmark that are not recorded yet.
    watched: List[Tuple[CaseRun, Watched]] = field(default_factory=list)
    #: The meter behind the fixture ``benchmark``, while the test runs.
    meter: Optional[StepMeter] = None
    #: For each fresh process: name -> its measurement.
    processes: List[Dict[str, Benchmark]] = field(default_factory=list)
    #: The record's part about ``--wait-for-quiet``.
    quiet: Optional[Quiet] = None


_state_key = pytest.StashKey[CaseState]()


def state_of(item: pytest.Item) -> CaseState:
    """Return the measurements of a test so far."""
    return item.stash.setdefault(_state_key, CaseState())


def begin_test(item: pytest.Item) -> None:
    """Start with no measurements; the results to come are this test's."""
    item.stash[_state_key] = CaseState()
    run_of(item.config).item = item


@dataclass(frozen=True)
class Calls:
    """The calls in each round that another program timed."""

    timed_by: str
    each_round: int  # calls, or whatever the unit is
    unit: str


def timed_by_another(
    first: FirstFacts,
    calls: Calls,
    seconds: Sequence[float],
    latency: Latency,
    memory: Memory,
    contention: Contention,
    effective: Facts,
    compile: str,
    canary_kind: str,
    data: Facts,
    counters: Optional[Facts] = None,
    spec: Optional[Spec] = None,
) -> Record:
    """Return the record of the ``seconds`` of another program's rounds, which have no canary."""
    items = float(calls.each_round)
    rates = throughput(seconds, items, calls.unit)
    return Record(
        **first._asdict(),
        effective=effective,
        build_seconds=0.0,
        compile_seconds=0.0,
        compile=compile,
        first_step_seconds=0.0,
        rounds=Rounds(len(seconds), calls.each_round, calls.timed_by, ()),
        canary=Canary(canary_kind, (), "never"),
        items_per_round=items,
        throughput=rates,
        throughput_mean=rates.mean,
        latency=latency,
        compute=None,
        implausible=False,
        memory=memory,
        counters=counters or {},
        input=None,
        data=data,
        contention=contention,
        spec=spec,
    )


def fail_where_implausible(record: Record, where: str = "") -> None:
    """Fail the case if its record claims more work than the device can do."""
    compute = record.compute
    if not record.implausible or compute is None:
        return
    achieved, share, peak = map(known, (compute.achieved, compute.share, compute.peak))
    pytest.fail(
        f"{record.name} is implausible: {achieved:.3g} FLOP/s is "
        f"{share:.2f} times what a matrix product reaches on this device at "
        f"{record.effective['precision']} ({peak:.3g} FLOP/s), so part of "
        f"the work was left out{where}",
        pytrace=False,
    )
