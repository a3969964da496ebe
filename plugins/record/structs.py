"""The stored types: a record, and the benchmark that contains it.

A record is the value of ``extra_info["ipubench"]`` in a benchmark of pytest-benchmark's format.
The rounds stay in that format's ``stats["data"]``, in seconds per batch.

A file that lacks a field without a default is damaged. Readers ignore unknown fields.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

import msgspec
from msgspec import Meta, Struct

from ipubench.fixtures.case.untrusted import typed

if sys.version_info >= (3, 9):
    from typing import Annotated  # novm
else:
    from typing_extensions import Annotated

if TYPE_CHECKING:
    #: A JSON value.
    Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]
else:
    Json = Any

NAMESPACE = "ipubench"
#: Values of free form: a case's options, a framework's counts.
Facts = Mapping[str, Json]
#: Limits of measured values: ratios of other numbers may not be finite.
Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]
Amount = Annotated[float, Meta(ge=0, le=1e30)]
Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
#: Seconds since 1970.
Moment = Annotated[float, Meta(ge=0, le=1e11)]
Count = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1)]
#: UTC, ISO 8601.
TIME = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
Time = Annotated[str, Meta(pattern=TIME)]
#: A commit, with -dirty if files differed from it.
Revision = Annotated[str, Meta(pattern="^[0-9a-f]{1,64}(-dirty)?$")]


class Part(Struct, frozen=True, omit_defaults=True):
    """Base class of the stored types."""


class Device(Part, frozen=True):
    """The device; results can be compared only if their ``fingerprint`` is the same."""

    kind: str
    name: str
    fingerprint: Name
    details: Facts


class Quiet(Part, frozen=True):
    """What ``--wait-for-quiet`` waited for."""

    quiet: bool
    waited_seconds: Amount
    used_by_others: Number


class Rounds(Part, frozen=True):
    """How many rounds there were, of how many batches, and what ended them."""

    count: Count
    batches_per_step: Count
    stopped_by: str
    dropped_seconds: Sequence[Amount]
    warm_up_ended_by: str = ""
    #: The share of the configured work that a round does on this slow machine.
    shortened: Optional[Amount] = None


class Canary(Part, frozen=True):
    """A small piece of work that is timed along with the rounds."""

    kind: str
    seconds: Sequence[Positive]
    when: str


class Contention(Part, frozen=True):
    """What other programs took from each round; ``unknown`` is the reason if that is unknown.

    ``lost`` is the share of each round, ``limit`` what a clean one may have lost. ``kept``: whether
    each counts. ``enough``: whether enough rounds are clean to judge by. ``copies_ms`` show the
    machine's state around each.
    """

    unknown: str = ""
    limit: Optional[Amount] = None
    lost: Sequence[Number] = ()
    cpu_seconds: Sequence[Number] = ()
    kept: Sequence[bool] = ()
    clean: Optional[Count] = None
    enough: Optional[bool] = None
    by_others: Optional[Number] = None
    waited: Optional[Number] = None
    stolen: Optional[Number] = None
    beside: Optional[Number] = None
    throttled: Optional[Number] = None
    reading_seconds: Optional[Number] = None
    copies_ms: Sequence[Positive] = ()
    copy_ms: Optional[Positive] = None

    def __post_init__(self) -> None:
        known = (self.enough is not None, bool(self.lost), self.limit is not None)
        if any(known) and not all(known):
            raise ValueError("`enough`, `lost` and `limit` are there together or not at all")


class Throughput(Part, frozen=True):
    """Items per second over the rounds of one process."""

    unit: str
    #: Half the interval over the median: what the table shows as ±.
    spread: Amount
    median: Positive
    #: The 95% interval of the median.
    low: Positive
    high: Positive
    mean: Positive
    min: Positive
    max: Positive


class Latency(Part, frozen=True):
    """The latency of a batch in milliseconds, and which calls were timed."""

    source: str
    p50_ms: Amount
    p90_ms: Amount
    p99_ms: Amount
    samples: Count
    #: Batches per call, if there are several.
    batches: Optional[Count] = None


class Compute(Part, frozen=True):
    """Achieved FLOP/s and bytes/s, and the highest rates measured on the device."""

    copy_peak_bytes_per_s: Optional[Amount]
    flops_per_item: Optional[Amount] = None
    achieved: Optional[Amount] = None
    peak: Optional[Amount] = None
    share: Optional[Amount] = None
    weight_bytes_per_item: Optional[Amount] = None
    peak_disturbed: bool = False


class Memory(Part, frozen=True):
    """Peak memory in bytes; the host's counts from ``since``."""

    host_peak_rss_bytes: Count
    since: str
    device_peak_bytes: Optional[Count]


class Energy(Part, frozen=True):
    """The energy from before the first round to after the last, by the counter ``source``.

    ``seconds``: how long that was. ``unknown`` is the reason if there are no joules.
    """

    source: str
    seconds: Amount
    joules: Optional[Amount] = None
    per_item: Optional[Positive] = None
    unknown: str = ""


class InputRates(Part, frozen=True):
    """Items per second of the loader alone and of the model alone; the lower one limits."""

    unit: str
    loader: Amount
    model: Amount
    limit: str


class Operation(Part, frozen=True):
    """An operation of a profiled call: its share of the time (0 to 1) and its seconds."""

    name: str
    share: Amount
    seconds: Amount


class GrownOperation(Part, frozen=True):
    """An operation whose share of the time grew."""

    name: str
    before: Amount
    now: Amount
    seconds_before: Amount
    seconds_now: Amount


class GrownFunction(Part, frozen=True):
    """A function of compiled code whose instructions grew: a call's before and now."""

    name: str
    before: Amount
    now: Amount


class CountedCase(Part, frozen=True):
    """One process's count for a case: instructions per call, or why there is none.

    ``calls``: how many were counted; ``how`` has to be the same for two counts to be compared.
    ``multiplexed``: for which share of the time others had the performance unit.
    """

    per_call: Optional[Positive] = None
    calls: Optional[Count] = None
    uncountable: str = ""
    how: Facts = {}
    functions: Mapping[str, Amount] = {}
    multiplexed: Optional[Amount] = None


class Instructions(Part, frozen=True):
    """The instructions of a call, for each process; ``functions`` are those of the least count.

    ``spread`` is the relative difference between the largest and the least count.
    """

    processes: Sequence[Positive] = ()
    per_call: Optional[Positive] = None
    spread: Amount = 0.0
    uncountable: str = ""
    how: Facts = {}
    functions: Mapping[str, Amount] = {}


class Profile(Part, frozen=True):
    """The operations of one call here, largest share first, and there."""

    folder: str = ""
    here: Sequence[Operation] = ()
    there: Sequence[Operation] = ()
    grown: Sequence[GrownOperation] = ()
    notes: Sequence[str] = ()
    functions: Sequence[GrownFunction] = ()


class Accepted(Part, frozen=True):
    """A slow-down that a person accepted with ``promote``."""

    reason: str
    time: str = ""
    change: Optional[Number] = None


class SpecMetric(Part, frozen=True):
    """The values of a metric that matched, and the figure that its reduction makes of them."""

    reduction: str
    value: float
    values: Sequence[float]


class Spec(Part, frozen=True):
    """A command of a benchmarks.yml, and what it printed."""

    entry: str
    variant: str
    columns: Sequence[Tuple[str, Json]]
    seconds: Amount
    git: Optional[str]
    file: str = ""
    command: Sequence[str] = ()
    folder: str = ""
    copies: int = 1
    metrics: Mapping[str, SpecMetric] = {}
    derived: Facts = {}
    stdout: str = ""
    stderr: str = ""


class Process(Part, frozen=True):
    """One process's measurements of a case: the independent unit of a comparison.

    The rounds of a process share its memory layout, so they are correlated. ``fresh``: the process
    measured only this case. ``seconds`` has each round that counts, ``canaries`` the canary's
    times. ``compile_seconds`` can be compared if ``compile`` is "fresh". ``clean``: whether enough
    rounds were undisturbed. ``lost``: the mean share of a round that other programs took.
    ``copy_ms``: the time of a memory copy, which shows the machine's state. ``cpu_seconds``: the
    median CPU time of a round. ``energy``: the joules of an item. The last five are None if
    unknown.
    """

    fresh: bool
    time: Time
    items_per_round: Positive
    seconds: Annotated[Sequence[Positive], Meta(min_length=1)]
    canaries: Sequence[Positive]
    compile: str
    compile_seconds: Amount
    latency_p99_ms: Amount
    memory_bytes: Count
    clean: Optional[bool] = None
    lost: Optional[Amount] = None
    copy_ms: Optional[Positive] = None
    cpu_seconds: Optional[Amount] = None
    energy: Optional[Positive] = None

    def __post_init__(self) -> None:
        if self.clean is not None and self.lost is None:
            raise ValueError("`clean` is there without `lost`")


class Record(Part, frozen=True):
    """The result of a case, and everything needed to judge it later.

    ``processes`` are those that measured the case, the run's own first; a record of the journal,
    which one process wrote, has none and stands for itself.
    """

    format: int
    name: Name
    config: Facts
    overrides: Sequence[str]
    effective_options: Facts
    config_hash: Name
    framework: Optional[str]
    device: Device
    conditions: Facts
    workers: int
    versions: Mapping[str, str]
    git: Optional[Revision]
    time: Time
    effective: Facts
    build_seconds: Amount
    compile_seconds: Amount
    compile: str
    first_step_seconds: Amount
    rounds: Rounds
    canary: Canary
    items_per_round: Positive
    throughput: Throughput
    throughput_mean: Positive
    latency: Latency
    compute: Optional[Compute]
    implausible: bool
    memory: Memory
    counters: Facts
    input: Optional[InputRates]
    data: Facts
    contention: Contention = Contention()
    spent: Mapping[str, Amount] = {}
    #: The node id of its test, if that has several results.
    test: Optional[str] = None
    host: Optional[str] = None
    wait_for_quiet: Optional[Quiet] = None
    compile_saved_seconds: Optional[Amount] = None
    finish: Facts = {}
    energy: Optional[Energy] = None
    spec: Optional[Spec] = None
    processes: Sequence[Process] = ()
    instructions: Optional[Instructions] = None
    #: Oldest first.
    accepted: Sequence[Accepted] = ()
    #: In the history: the baseline that the result became part of.
    promoted: str = ""


class Stats(Part, frozen=True):
    """pytest-benchmark's statistics: ``data`` in seconds per batch; ``iterations`` are batches."""

    data: Annotated[Sequence[Positive], Meta(min_length=1)]
    iterations: AtLeastOne
    rounds: int
    outliers: str
    iqr_outliers: int
    stddev_outliers: int
    min: Optional[float]
    max: Optional[float]
    mean: Optional[float]
    median: Optional[float]
    stddev: Optional[float]
    iqr: Optional[float]
    q1: Optional[float]
    q3: Optional[float]
    ld15iqr: Optional[float]
    hd15iqr: Optional[float]
    ops: Optional[float]
    total: Optional[float]


class ExtraInfo(Part, frozen=True):
    """Our record, and what the test has added."""

    ipubench: Record
    others: Facts = {}


class Benchmark(Part, frozen=True):
    """A finished benchmark in pytest-benchmark's format, with our record in it."""

    fullname: Name
    name: str
    group: Optional[str]
    param: Optional[str]
    params: Optional[Facts]
    options: Facts
    stats: Stats
    extra_info: ExtraInfo

    @property
    def record(self) -> Record:
        """Our record."""
        return self.extra_info.ipubench

    @staticmethod
    def of(plain: Json) -> Benchmark:
        """Return the benchmark in plain JSON. Raises ValueError, with the place."""
        return typed(inward(plain), Benchmark)


class Around(Part, frozen=True, omit_defaults=False):
    """The other top-level fields of a document of pytest-benchmark."""

    machine_info: Facts = {}
    commit_info: Facts = {}
    datetime: str = ""
    version: str = ""


#: The fields of a journal line that contain benchmarks.
HOLDERS = ("benchmark", "here", "there")


def inward(plain: Any) -> Any:
    """Return plain JSON for msgspec, with the test's own ``extra_info`` moved into ``others``.

    Damaged values stay unchanged.
    """
    return _with_extra(plain, _apart)


def as_plain(value: Struct) -> Any:
    """Return a benchmark, a line, a document or another struct as plain JSON."""
    return _with_extra(msgspec.to_builtins(value), _together)


def _with_extra(plain: Any, change: Callable[[Dict[str, Json]], Facts]) -> Any:
    if not isinstance(plain, dict):
        return plain
    if isinstance(plain.get("benchmarks"), list):
        return {**plain, "benchmarks": [_with_extra(one, change) for one in plain["benchmarks"]]}
    extra = plain.get("extra_info")
    if "stats" in plain and isinstance(extra, dict) and NAMESPACE in extra:
        return {**plain, "extra_info": change(extra)}
    holders = {name: _with_extra(plain[name], change) for name in HOLDERS if name in plain}
    return {**plain, **holders}


def _apart(extra: Dict[str, Json]) -> Facts:
    others = {name: value for name, value in extra.items() if name != NAMESPACE}
    return {NAMESPACE: extra[NAMESPACE], "others": others}


def _together(extra: Dict[str, Any]) -> Facts:
    return {**extra.pop("others", {}), **extra}
