"""The only module that uses pytest-benchmark beyond its public fixture (4.0 to 5.3).

``benchmark.pedantic`` fixes the number of rounds at the call. We decide while it runs: its
``setup`` runs before each round and raises an exception to end the rounds.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import math
import reprlib
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest
from msgspec.structs import replace
from pytest_benchmark.fixture import BenchmarkFixture

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.masking import remember, secrets_under
from ipubench.fixtures.case.untrusted import typed
from ipubench.fixtures.machine.frames import left_out
from ipubench.fixtures.runtimes.call import CallStep, a_loop_runs, is_coroutine
from ipubench.fixtures.runtimes.surrounded import nothing
from ipubench.plugins.record.structs import (
    NAMESPACE,
    Around,
    Benchmark,
    Facts,
    Json,
    Record,
    as_plain,
)

if TYPE_CHECKING:
    from ipubench.fixtures.runtimes.event_loop import InLoop

__tracebackhide__ = left_out

# pytest-benchmark has no types.
call: Callable[..., Any] = BenchmarkFixture.__call__
pedantic: Callable[..., Any] = BenchmarkFixture.pedantic

# The most characters of a parameter in a record; some tests have lists of a million numbers.
LONGEST_PARAMETER = 1000


#: The parameters of ``pedantic``, in order.
PEDANTIC = tuple(inspect.signature(BenchmarkFixture.pedantic).parameters)[1:]


class EnoughRounds(Exception):
    """Raised by ``before_round`` to end the rounds."""


def run_rounds(
    benchmark: Any,
    step: Callable[[], None],
    before_round: Callable[[List[float]], None],
    clock: Callable[[], float],
    params: Facts,
    batches: int,
) -> List[float]:
    """Time ``step`` until ``before_round(rounds so far)`` raises EnoughRounds; return seconds.

    A round runs ``batches`` batches, which pytest-benchmark takes for its iterations. So its own
    statistics are seconds per batch and can be compared between runs.
    The case stays in pytest-benchmark's session and in its JSON. With ``--benchmark-disable``, the
    step runs once more, untimed, and the list is empty.
    """
    if benchmark.disabled:
        pedantic(benchmark, step)
        return []
    # The case replaces its options as a parameter; pytest-benchmark groups by the parameters.
    own = benchmark.params or {}
    benchmark.params = {**params, **{name: own[name] for name in own if name != "ipubench_case"}}
    # The device provides the clock; pytest-benchmark's own option only allows host timers.
    benchmark._timer = clock

    seconds: List[float] = []

    def setup() -> None:
        benchmark.stats.iterations = batches
        data = benchmark.stats.stats.data
        seconds.extend(value * batches for value in data[len(seconds) :])
        before_round(seconds)

    take(benchmark)
    try:
        pedantic(benchmark, step, setup=setup, rounds=sys.maxsize)
    except EnoughRounds:
        benchmark.has_error = False
    return seconds


def awaiting(benchmark: Any, function: Any) -> Optional[InLoop]:
    """Return an object that awaits and times a coroutine function in the running event loop.

    Returns None if the function is not a coroutine function or no loop is running.
    """
    if not (is_coroutine(function) and a_loop_runs()):
        return None
    from ipubench.fixtures.runtimes.event_loop import InLoop

    in_loop = InLoop(function, benchmark.wait)
    benchmark._timer = in_loop.clock
    # This clock does not advance, so pytest-benchmark must not measure its precision.
    benchmark._precisions[in_loop.clock] = time.get_clock_info("perf_counter").resolution
    return in_loop


class Recorded(BenchmarkFixture):
    """The fixture of a test whose measurement is a case; see :func:`make_recorded`."""

    _measure: Callable[[Any, Callable[[], Any]], Any]
    _itself: Callable[[Any, Callable[[], Any]], Any]
    #: The most calls of ``pedantic``, each made by ``each(function)``; 0: the test's own number.
    most_calls = 0
    calls = 0  # about to be made
    each: Callable[[Callable[[], Any]], Any]
    #: The arguments of ``pedantic`` with a setup, which can be called any number of times.
    repeatable: Optional[CallStep] = None
    #: Waits for the device before each reading of the clock.
    wait: Callable[[], None] = staticmethod(nothing)

    def __call__(self, function_to_benchmark: Any, *args: Any, **kwargs: Any) -> Any:
        """Measure a function; return its last result."""
        if self._mode:  # used twice: pytest-benchmark raises the error
            return call(self, function_to_benchmark, *args, **kwargs)
        return self._use(self._measure, partial(function_to_benchmark, *args, **kwargs))

    def by_pytest_benchmark(self, function: Callable[[], Any]) -> Any:
        """Measure a function as pytest-benchmark does."""
        take(self)
        if isinstance(function, partial):  # called through it, a builtin is missing in a profile
            return call(self, function.func, *function.args, **function.keywords)
        return call(self, function)

    def pedantic(self, *args: Any, **named: Any) -> Any:
        """Measure with the test's own settings; await a coroutine function in a running loop."""
        take(self)
        target = args[0] if args else named.pop("target", None)
        in_loop = awaiting(self, target)
        args = (in_loop or target, *args[1:])
        if in_loop is None:
            self.repeatable = _with_setup(self, args, named)
        if self.most_calls:
            args, named = self._one_by_one(args, named)
        run = partial(pedantic, self, *args, **named)
        if self._mode:
            return run()
        use = partial(self._use, self._itself, run)
        return use() if in_loop is None else in_loop.run_in_thread(use)

    def _one_by_one(self, args: Any, named: Dict[str, Any]) -> Tuple[Any, Dict[str, Any]]:
        """Return arguments of ``pedantic`` for few calls, each made by ``each``."""
        named = {**dict(zip(PEDANTIC, args)), **named}
        rounds = named.get("rounds", 1)
        if isinstance(rounds, int):  # else its error
            named["rounds"] = self.calls = min(rounds, self.most_calls)
        named.update(warmup_rounds=0, iterations=1)
        return (partial(self._by_each, named.pop("target")),), named

    def _by_each(self, target: Any, *args: Any, **named: Any) -> Any:
        return self.each(partial(target, *args, **named))

    def _use(self, work: Callable[[Any, Callable[[], Any]], Any], function: Any) -> Any:
        try:
            return work(self, function)
        except BaseException:
            count_as_used(self)
            raise


def _with_setup(benchmark: Any, given: Any, named: Any) -> Optional[CallStep]:
    """Return the step of ``pedantic``, if it has a setup, which makes calls independent."""
    arguments = inspect.signature(pedantic).bind(benchmark, *given, **named).arguments
    setup = arguments.get("setup")
    if setup is None or benchmark.disabled:
        return None
    passed = (arguments.get("args", ()), arguments.get("kwargs") or {})
    return CallStep(arguments["target"], lambda: setup() or passed, arguments.get("teardown"))


def make_recorded(
    benchmark: Any,
    measure: Callable[[Any, Callable[[], Any]], Any],
    itself: Callable[[Any, Callable[[], Any]], Any],
    wait: Optional[Callable[[], None]] = None,
) -> Recorded:
    """Turn pytest-benchmark's fixture into one that passes its function to us.

    ``measure`` gets a function without arguments, ``itself`` one that lets pytest-benchmark
    measure; both return the function's result. ``wait`` waits for the device.
    """
    benchmark.__class__ = Recorded
    recorded: Recorded = benchmark
    recorded._measure, recorded._itself = measure, itself
    if wait is not None:
        recorded.wait, recorded._timer = wait, partial(_after, wait, benchmark._timer)
    return recorded


def _after(wait: Callable[[], None], timer: Callable[[], float]) -> float:
    """Return the time once the device has finished."""
    wait()
    return timer()


@contextlib.contextmanager
def garbage_collection_as_set(benchmark: Any) -> Iterator[bool]:
    """Disable garbage collection if the test or the command line does; yield whether it is off.

    The settings are ``benchmark.disable_gc`` and ``--benchmark-disable-gc``.
    """
    off = bool(benchmark._disable_gc)
    was_on = gc.isenabled()
    if off:
        gc.disable()
    try:
        yield off
    finally:
        if off and was_on:
            gc.enable()


def take(benchmark: Any) -> None:
    """Mark a fixture as handled: its measurement is recorded, or the reason why not is shown."""
    benchmark.ipubench_takes = True


def _is_taken(benchmark: Any) -> bool:
    return getattr(benchmark, "ipubench_takes", False)


class _Results(List[Any]):
    """The results of a session; pytest-benchmark adds each one before its first round."""

    begin: Callable[[Any], None]

    def append(self, result: Any) -> None:
        """Add a result."""
        if not _is_taken(result.fixture):
            self.begin(result.fixture)
        super().append(result)


def watch_results(config: pytest.Config, begin: Callable[[Any], None]) -> None:
    """Call ``begin`` with each unhandled fixture that is about to measure."""
    session: Any = config._benchmarksession  # type: ignore[attr-defined]
    session.benchmarks = _Results(session.benchmarks)
    session.benchmarks.begin = begin


def has_result(benchmark: Any) -> bool:
    """Return whether a fixture has measured a round and none of its calls has failed."""
    return bool(benchmark.stats) and not benchmark.has_error


def unrecorded(config: pytest.Config) -> List[str]:
    """Return the names of the session's results that we did not record."""
    session: Any = getattr(config, "_benchmarksession", None)
    results = [] if session is None else session.benchmarks
    return [
        result.fullname
        for result in results
        if not isinstance(result, Measured)
        and not _is_taken(result.fixture)
        and has_result(result.fixture)
    ]


def forget(config: pytest.Config, benchmark: Any) -> None:
    """Remove a fixture's rounds from pytest-benchmark's session."""
    session: Any = config._benchmarksession  # type: ignore[attr-defined]
    if benchmark.stats is not None:
        session.benchmarks[:] = [one for one in session.benchmarks if one is not benchmark.stats]
    count_as_used(benchmark)


def count_once(config: pytest.Config, benchmark: Any, seconds: float) -> None:
    """Replace a fixture's rounds by its first call, because a later call has failed."""
    forget(config, benchmark)
    take(benchmark)
    benchmark.has_error = False
    benchmark._make_stats(1).update(seconds)


def leave_out(benchmark: Any) -> None:
    """Tell pytest-benchmark that this test measures nothing."""
    benchmark.disabled = True
    pedantic(benchmark, lambda: None)


def count_as_used(benchmark: Any) -> None:
    """Suppress pytest-benchmark's warning about an unused fixture, after an early failure."""
    benchmark._mode = benchmark._mode or "benchmark(...)"


def finished(benchmark: Any, record: Record) -> Benchmark:
    """Return the finished benchmark with its rounds and our record, and add the record to it.

    In the test's parameters and ``extra_info``, values that JSON lacks and long parameters become
    short texts. Raises CaseError for such a value in our record, and for a number that readers
    would reject.
    """
    try:
        benchmark.extra_info[NAMESPACE] = as_plain(record)
    except TypeError as error:
        raise CaseError(
            f"{benchmark.fullname} cannot be recorded: {error}; a step's describe(), counters() "
            "and finish() return JSON values, such as float(loss)"
        ) from None
    found = benchmark.stats.as_dict(include_data=True)
    params = found["params"]
    if params is not None:
        found["params"] = {name: _plain(params[name], LONGEST_PARAMETER) for name in params}
    found["extra_info"] = {**noted(benchmark), NAMESPACE: benchmark.extra_info[NAMESPACE]}
    try:
        return Benchmark.of(json.loads(json.dumps(found)))
    except ValueError as error:
        raise CaseError(f"{benchmark.fullname} cannot be recorded: {error}") from None


def noted(benchmark: Any) -> Facts:
    """Return what the test has put into ``extra_info``, as plain JSON."""
    extra = benchmark.extra_info
    remember(secrets_under(extra))
    return {str(name): _plain(value) for name, value in extra.items() if name != NAMESPACE}


def _plain(value: object, longest: float = math.inf) -> Json:
    """Return a value as plain JSON, or as a short text if that is impossible or too long."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return reprlib.repr(value)
    plain: Json = json.loads(text) if len(text) <= longest else reprlib.repr(value)
    return plain


def hide_table(config: pytest.Config) -> None:
    """Hide pytest-benchmark's table, unless the user asked for verbose output."""
    session = getattr(config, "_benchmarksession", None)
    if session is not None and not session.verbose:
        session.quiet = True


def grouped(config: pytest.Config, benchmarks: Sequence[Benchmark]) -> List[Benchmark]:
    """Return benchmarks with the groups of ``--benchmark-group-by``, by default their own."""
    names = ("fullname", "name", "group", "param", "params", "options")
    found = config.hook.pytest_benchmark_group_stats(
        config=config,
        benchmarks=[{name: getattr(one, name) for name in names} for one in benchmarks],
        group_by=config.getoption("benchmark_group_by"),
    )
    groups = {one["fullname"]: group for group, members in found for one in members}
    return [replace(one, group=groups.get(one.fullname)) for one in benchmarks]


def around(config: pytest.Config) -> Around:
    """Return the other top-level fields of a document of pytest-benchmark."""
    hook = config.hook
    machine_info = hook.pytest_benchmark_generate_machine_info(config=config)
    hook.pytest_benchmark_update_machine_info(config=config, machine_info=machine_info)
    commit_info = hook.pytest_benchmark_generate_commit_info(config=config)
    hook.pytest_benchmark_update_commit_info(config=config, commit_info=commit_info)
    output = hook.pytest_benchmark_generate_json(
        config=config,
        benchmarks=[],
        include_data=True,
        machine_info=machine_info,
        commit_info=commit_info,
    )
    return typed(output, Around)


def measure_elsewhere(config: pytest.Config) -> None:
    """Disable pytest-benchmark in a controller of workers, which measures nothing itself.

    Otherwise it warns that workers cannot measure (4.0) and refuses ``--benchmark-only``. Call this
    before pytest-benchmark is configured.
    """
    config.option.benchmark_disable = True
    config.option.benchmark_enable = False
    config.option.benchmark_only = False


def leave_files_alone(config: pytest.Config) -> None:
    """Disable saving and comparing in a worker, as the controller does both; call it as early."""
    for name in ("json", "save", "autosave", "compare"):
        setattr(config.option, f"benchmark_{name}", None)
    config.option.benchmark_compare_fail = []


class Measured:
    """A benchmark from another process, in the form that pytest-benchmark's session needs."""

    has_error = False

    def __init__(self, plain: Dict[str, Any]) -> None:
        """``plain``: the JSON values of a :class:`Benchmark`."""
        self._plain = plain
        self.fullname = plain["fullname"]

    def __getitem__(self, field: str) -> Any:
        """Return one of the statistics, for ``--benchmark-compare-fail``."""
        return self._plain["stats"][field]

    def as_dict(
        self,
        include_data: bool = True,
        flat: bool = False,
        stats: bool = True,
        cprofile: Any = None,
    ) -> Dict[str, Any]:
        """Return a copy for a file or, ``flat``, for a table."""
        plain = {key: value for key, value in self._plain.items() if key != "stats"}
        if stats:
            kept = dict(self._plain["stats"])
            if not include_data:
                del kept["data"]
            plain.update(kept if flat else {"stats": kept})
        return plain


def adopt(config: pytest.Config, benchmark: Benchmark) -> None:
    """Add a benchmark of another process to this session's table, files and comparisons.

    Replaces an earlier result of the same case, from a process that was lost.
    """
    session: Any = config._benchmarksession  # type: ignore[attr-defined]
    kept = [one for one in session.benchmarks if one.fullname != benchmark.fullname]
    session.benchmarks[:] = [*kept, Measured(as_plain(benchmark))]
