"""The types of a journal's lines, distinguished by ``type`` (plugins/run/journal.py)."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Iterable, List, Mapping, NamedTuple, Optional, Sequence, Union

from ipubench.fixtures.case.untrusted import typed
from ipubench.plugins.gate.rounds import AdjacentRounds
from ipubench.plugins.record.files import each_json_line
from ipubench.plugins.record.structs import (
    Amount,
    Benchmark,
    CountedCase,
    Facts,
    Json,
    Moment,
    Name,
    Part,
    Profile,
    inward,
)
from ipubench.plugins.record.verdict import Verdict

#: Variables that count as part of the command line; the first contains options.
ADDED = "PYTEST_ADDOPTS"
VARIABLES = (ADDED, "DATASETS_DIR")


class Line(Part, frozen=True, tag_field="type"):
    """A line of a journal."""


class RunLine(Line, frozen=True, tag="run"):
    """The start of a run: its command line, and the circumstances for resuming it."""

    format: int
    command: Sequence[str] = ()
    started: Optional[Moment] = None
    pid: Optional[int] = None
    circumstances: Mapping[str, Optional[str]] = {}

    @property
    def shown_command(self) -> str:
        """The command line for a shell, with the variables that are part of it."""
        words = self.command
        added = list(itertools.takewhile(lambda word: word.partition("=")[0] in VARIABLES, words))
        variables = (word.partition("=") for word in added)
        assigned = [f"{name}={shlex.quote(value)}" for name, _, value in variables]
        return " ".join([*assigned, "pytest", *map(shlex.quote, words[len(added) :])])


class ResumeLine(Line, frozen=True, tag="resume"):
    """The start of a run that resumes this one and keeps some cases.

    ``compared``: other cases whose pairs it keeps.
    """

    kept: Sequence[str]
    compared: Sequence[str] = ()
    pid: Optional[int] = None
    circumstances: Mapping[str, Optional[str]] = {}


class SelectedLine(Line, frozen=True, tag="selected"):
    """The selected cases."""

    cases: Sequence[str]


class BeginLine(Line, frozen=True, tag="begin"):
    """The start of a case."""

    case: str


class CaseLine(Line, frozen=True, tag="case"):
    """A measured case."""

    benchmark: Benchmark

    @property
    def case(self) -> str:
        """The node id."""
        return self.benchmark.fullname


class FreshLine(CaseLine, frozen=True, tag="fresh"):
    """A case measured again in a fresh process."""


class ExtraLine(Line, frozen=True, tag="extra"):
    """What a test or its fixtures added to ``extra_info`` after the measurement."""

    case: str
    extra_info: Facts


class PairLine(Line, frozen=True, tag="pair"):
    """A case measured alternately here and in another environment."""

    case: str
    here: Benchmark
    there: Benchmark
    here_first: Optional[bool] = None
    rounds: Optional[AdjacentRounds] = None
    alone: bool = True


class CountLine(Line, frozen=True, tag="count"):
    """A process's count of a case."""

    case: str
    counted: CountedCase


class VerdictLine(Line, frozen=True, tag="verdict"):
    """The gate's verdict on a case."""

    case: str
    verdict: Verdict


class ProfileLine(Line, frozen=True, tag="profile"):
    """The operations of a profiled case."""

    case: str
    profile: Profile


class OutcomeLine(Line, frozen=True, tag="outcome"):
    """How a case's test ended, why in one line, and the full message if the user can fix it."""

    case: str
    outcome: str
    why: str = ""
    message: str = ""


class EndLine(Line, frozen=True, tag="end"):
    """How the run ended."""

    exit_code: Optional[int] = None
    time: Optional[Moment] = None
    baseline: str = ""
    gate: str = "no gate"
    missing: Sequence[str] = ()
    spent: Mapping[str, Amount] = {}
    closing: Sequence[str] = ()
    #: What makes the gate another one than a reader would expect.
    gate_notes: Sequence[str] = ()


class Damaged(NamedTuple):
    """A line that cannot be read, its case ('' if that is lost too), and why."""

    case: str
    why: str


JournalLine = Union[
    RunLine,
    ResumeLine,
    SelectedLine,
    BeginLine,
    CaseLine,
    FreshLine,
    ExtraLine,
    PairLine,
    CountLine,
    VerdictLine,
    ProfileLine,
    OutcomeLine,
    EndLine,
]


class _Named(Part, frozen=True):
    fullname: Name


class _OfCase(Part, frozen=True):
    """The part of a damaged line that names its case."""

    type: str
    case: str = ""
    benchmark: Optional[_Named] = None


def line_of(plain: Union[Json, ValueError]) -> Union[JournalLine, Damaged, None]:
    """Return a line; None if its type is unknown. A line without a value is an error here."""
    if isinstance(plain, ValueError):
        return Damaged("", str(plain))
    try:
        line: JournalLine = typed(inward(plain), JournalLine)  # type: ignore[arg-type]
        return line
    except ValueError as error:
        why = str(error)
    try:
        found = typed(plain, _OfCase)
    except ValueError:
        return Damaged("", why)
    if found.type not in TYPES:
        return None
    return Damaged(found.case or (found.benchmark.fullname if found.benchmark else ""), why)


TYPES = {str(one.__struct_config__.tag) for one in JournalLine.__args__}  # type: ignore[attr-defined]


def lines_of(plain: Iterable[Union[Json, ValueError]]) -> List[Union[JournalLine, Damaged]]:
    """Return the readable lines and the damaged ones, whose reason has the line's number."""
    found = []
    for number, line in enumerate(map(line_of, plain), 1):
        if isinstance(line, Damaged):
            line = line._replace(why=f"line {number}: {line.why}")
        if line is not None:
            found.append(line)
    return found


def read_lines(path: Path) -> List[Union[JournalLine, Damaged]]:
    """Return the lines of a journal. Raises OSError."""
    return lines_of(each_json_line(path))


def lines_in(folder: Path) -> List[Union[JournalLine, Damaged]]:
    """Return the lines of all journals in a folder. Raises OSError."""
    return [line for path in folder.glob("run-*.jsonl") for line in read_lines(path)]
