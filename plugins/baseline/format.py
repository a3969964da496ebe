"""Reads and checks the format of a baseline file; its types are in plugins/record/structs.py."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from statistics import median
from typing import Any, Callable, Final, Literal, Mapping, Sequence, Set

from ipubench.fixtures.case.untrusted import MOST_VALUES, parse_json, printable_lines, typed
from ipubench.plugins.baseline.entries import Key, key_of
from ipubench.plugins.baseline.pytest_benchmark_file import is_saved_file, with_records
from ipubench.plugins.record.record import clean_rounds, rounds_of
from ipubench.plugins.record.structs import NAMESPACE, Around, Benchmark, Json, Part, inward
from ipubench.plugins.results.rows import Report
from ipubench.plugins.results.run_facts import RunFacts

FORMAT: Final = 2
#: A file may have fewer digits of a rate than of its rounds.
ROUNDING = 1e-3
#: The end of msgspec's messages, and the part of a path that is the same in every benchmark.
PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
OF_CASE = re.compile(r"benchmarks\[(\d+)\]\.?(?:extra_info\.ipubench(?:\.|$))?(.*)")
#: The largest file.
MOST_BYTES = 64 << 20


class BaselineError(Exception):
    """Raised for an unusable baseline; the message names the file, the reason and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(printable_lines(message)))


def check_size(text: str) -> None:
    """Raise ValueError for a text with too many bytes or values to read."""
    # An estimate: a character has at least one byte, and commas in texts count as values.
    if len(text) > MOST_BYTES or sum(map(text.count, ",[{")) > MOST_VALUES:
        raise ValueError(
            f"it has more than {MOST_BYTES >> 20} MiB or {MOST_VALUES:,} values; keep fewer cases "
            "in one file, or fewer processes of each"
        )


class OurPart(Part, frozen=True):
    """Our own part of a document."""

    format: Literal[2]
    #: In a report: how its runs ended.
    runs: Sequence[RunFacts] = ()


class Document(Around, frozen=True, kw_only=True):
    """A baseline or a report: a document in pytest-benchmark's format."""

    benchmarks: Sequence[Benchmark]
    ipubench: OurPart = OurPart(FORMAT)

    @classmethod
    def of(
        cls, around: Around, benchmarks: Sequence[Benchmark], runs: Sequence[RunFacts] = ()
    ) -> Document:
        """Return a document with these benchmarks."""
        known = {name: getattr(around, name) for name in Around.__struct_fields__}
        ours = OurPart(FORMAT, tuple(run.facts() for run in runs))
        return cls(**known, benchmarks=benchmarks, ipubench=ours)

    def report(self) -> Report:
        """Return its results, as tables show them."""
        return Report(self.benchmarks, self.ipubench.runs, around=self)


def decode(path: Path, text: str, wanted: Callable[[str], bool], imports: bool) -> Document:
    """Return the ``wanted`` cases of the document in a file's text. Raises BaselineError.

    ``imports``: whether it may be a file of pytest-benchmark.
    """
    try:
        check_size(text)
        plain = parse_json(text)
    except ValueError as error:
        raise BaselineError(
            f"the baseline {path} cannot be read as JSON ({error}); restore it, or write another "
            "one with --baseline-save"
        ) from error
    imported = imports and is_saved_file(plain)
    plain = {**plain, NAMESPACE: {"format": FORMAT}} if imported else plain
    part = plain.get(NAMESPACE) if isinstance(plain, dict) else None
    version = part.get("format") if isinstance(part, dict) else None
    if type(version) is not int or not isinstance(plain.get("benchmarks"), list):
        or_file = ", nor a file of pytest-benchmark" if imports else ""
        raise BaselineError(
            f"{path} is not a baseline of this suite{or_file}; write one with --baseline-save"
        )
    if version != FORMAT:
        raise BaselineError(
            f"the baseline {path} has format {version}, this version reads {FORMAT}: use another "
            "ipubench, or write the baseline again"
        )
    kept = [one for one in plain["benchmarks"] if wanted(_name(one))]
    try:
        plain = {**plain, "benchmarks": kept}
        return checked(with_records(plain) if imported else plain)
    except ValueError as error:
        raise BaselineError(
            f"the baseline {path} is damaged: {error}; restore it, or write another one with "
            "--baseline-save"
        ) from None


def _name(plain: Json) -> str:
    name = plain.get("fullname") if isinstance(plain, dict) else None
    return name if isinstance(name, str) else ""


def checked(plain: Mapping[str, Json]) -> Document:
    """Return a document. Raises ValueError that names the case, the field and the fault."""
    try:
        document = typed(inward(plain), Document)
    except ValueError as error:
        raise ValueError(_describe(plain["benchmarks"], str(error))) from None
    seen: Set[Key] = set()
    for key in map(key_of, document.benchmarks):
        if key in seen:
            raise ValueError(
                f"{key.nodeid}: stored twice for {key.fingerprint} and one configuration"
            )
        seen.add(key)
    for benchmark in document.benchmarks:
        _check_rate(benchmark)
    return document


def _check_rate(benchmark: Benchmark) -> None:
    """Raise ValueError if the throughput is not that of the rounds, so that one of them is wrong.

    Tables show one, and a gate compares the other.
    """
    record = benchmark.record
    kept = itertools.compress(rounds_of(benchmark), clean_rounds(benchmark))
    rates = [record.items_per_round / median(kept)]
    rates += [own.items_per_round / median(own.seconds) for own in record.processes[:1]]
    for rate in rates:
        if not math.isclose(rate, record.throughput.median, rel_tol=ROUNDING):
            raise ValueError(
                f"{benchmark.fullname}: its rounds give {rate:.4g} {record.throughput.unit}, but "
                f"its throughput is {record.throughput.median:.4g}"
            )


def _describe(benchmarks: Any, message: str) -> str:
    """Return msgspec's message, with the case and the field first."""
    found = PLACE.search(message)
    place = found.group(1) if found else ""
    case = ""
    of_case = OF_CASE.fullmatch(place)
    if of_case:
        number = int(of_case.group(1))
        case = _name(benchmarks[number]) or f"case number {number + 1}"
        place = of_case.group(2)
    return ": ".join(filter(None, (case, place, PLACE.sub("", message))))
