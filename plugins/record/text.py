"""Formats numbers and tables, and parses values from the command line."""

from __future__ import annotations

import argparse
import collections
import fnmatch
import hashlib
import math
import re
import shutil
import sys
import time
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
)

from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.masking import mask_output
from ipubench.fixtures.case.untrusted import printable, printable_lines

EXIT_USAGE = 4  # the command line or a file cannot be used
# A table: the gap between columns, and the least width of the first column.
GAP = "  "
NARROWEST = 12
# A threshold: the largest, and its form.
LARGEST = 10.0  # 1000%; more is not a tolerance
NUMBER = r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
#: Hours, minutes and seconds in this order, all optional; or a plain number of seconds.
HOURS, MINUTES, SECONDS = "h(?:ours?|rs?)?", "m(?:in(?:ute)?s?)?", "s(?:ec(?:ond)?s?)?"
DURATION = re.compile(
    rf"(?:{NUMBER} ?{HOURS} ?)?(?:{NUMBER} ?{MINUTES} ?)?(?:{NUMBER} ?{SECONDS})?"
    rf"|{NUMBER} ?ms|{NUMBER}"
)
UNITS = (3600.0, 60.0, 1.0, 1e-3, 1.0)
# A file name:
LONGEST_NAME = 200  # characters of 255; the rest is for options of a run
DIGITS, DIGITS_OF_CUT = 6, 12  # of the digest; more for a cut name, as many begin alike
PERCENTAGE = re.compile(r"([0-9]{1,4}(\.[0-9]{0,6})?|\.[0-9]{1,6})\s?%?")


def short_number(value: float) -> str:
    """Return four significant digits without an exponent, thousands separated: 12,340 or 98.76."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.4g}")
    decimals = 3 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, decimals)}f}"


def rate_text(value: float) -> str:
    """Return a rate as text: 98.76, 12,340, 1.235 M or 2 G."""
    for prefix, size in (("G", 1e9), ("M", 1e6)):
        if math.isfinite(value) and abs(value) >= size:
            return f"{value / size:.4g} {prefix}"
    return short_number(value)


def time_text(seconds: float, unit: str = "s") -> str:
    """Return a time with three digits in a suitable unit: 220 ns, 15.7 µs, 2.31 ms, 1.2 s."""
    if not math.isfinite(seconds):
        return "-"
    if seconds >= 999.5:
        return f"{short_number(seconds)} {unit}"
    for prefix, length in (("", 1.0), ("m", 1e-3), ("µ", 1e-6)):
        if seconds >= 0.9995 * length:
            return f"{seconds / length:.3g} {prefix}{unit}"
    return f"{seconds / 1e-9:.3g} n{unit}"


def energy_text(joules: Optional[float]) -> str:
    """Return an energy with three digits in a suitable unit: 15.7 mJ; '' for None."""
    return "" if joules is None else time_text(joules, "J")


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Return a fraction as a percentage."""
    if not math.isfinite(value):
        return "-"
    rounded = round(100 * value, digits) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign else ''}.{digits}f}%"


def share_text(value: Any, digits: int = 1) -> str:
    """Return a fraction as a percentage; '' for None."""
    return "" if value is None else percent(value, digits)


def time_stamp() -> str:
    """Return the current time as records store it: UTC, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def minute_of(stamp: float) -> str:
    """Return a time since the epoch as text, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(stamp))


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most ``width`` columns, cut in the middle, where names differ least."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return text[:head] + ".." + text[len(text) - (width - 2 - head) :]


def terminal_width() -> int:
    """Return the columns to print in: the terminal's, or 80."""
    return shutil.get_terminal_size((80, 24)).columns


def minute(time: Optional[str]) -> str:
    """Return a record's time to the minute, UTC."""
    return (time or "-")[:16].replace("T", " ")


def table(rows: Sequence[Sequence[str]], width: int) -> List[str]:
    """Align rows, headings first: the first column to the left, the others to the right.

    The first column is cut in the middle to fit ``width``, but only while its names stay different.
    """
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    others = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = max(NARROWEST, min(widths[0], width - others))
    widths[0] = apart_from([row[0] for row in rows], widths[0])
    return [aligned(row, widths, GAP) for row in rows]


def apart_from(names: Sequence[str], width: int) -> int:
    """Return the least width, at least ``width``, at which cut names stay different."""
    different = set(names)
    while len({cut_middle(name, width) for name in different}) < len(different):
        width += 1
    return width


def aligned(cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    """Return one line of a table; only its first cell is cut."""
    name = cut_middle(cells[0], widths[0]).ljust(widths[0])
    figures = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
    return gap.join([name, *figures]).rstrip()


class Parser(argparse.ArgumentParser):
    """The argument parser of our programs; an error prints one line and exits with 4."""

    def error(self, message: str) -> NoReturn:
        """Exit with a message."""
        complain(f"{self.prog}: {message}; see {self.prog} --help")
        self.exit(EXIT_USAGE)


def say(line: str) -> None:
    """Print a line to standard output."""
    print(printable(mask_output(line)))


def complain(message: str) -> None:
    """Print a message of one or more lines to standard error."""
    for line in printable_lines(mask_output(message)):
        print(line, file=sys.stderr)


def given(text: str) -> str:
    """Return a text that is not empty, as an argparse type; an unset shell variable gives ''."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def whole_number(minimum: int) -> Callable[[str], int]:
    """Return an argparse type: whole numbers from ``minimum`` up."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {minimum} up")
        return value

    return parse


def duration(text: str) -> float:
    """Return the seconds of a duration such as 5ms, 30s, 2min or 1h30min, as an argparse type.

    A number alone is seconds.
    """
    found = DURATION.fullmatch(text.strip())
    parts = zip(found.groups("0"), UNITS) if found else ()
    seconds = math.fsum(float(number) * unit for number, unit in parts)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(
            f"{shortened(text)} is not a duration above 0; write it as 30s, 10min or 1.5h (a "
            "number alone is seconds)"
        )
    return seconds


def duration_text(seconds: float) -> str:
    """Return a duration as on a command line: 30s, 10min or 1.5h."""
    for unit, length in (("h", UNITS[0]), ("min", UNITS[1])):
        if seconds >= length and not seconds % (length / 2):
            return f"{seconds / length:.10g}{unit}"
    return f"{seconds:.10g}s"


def finite_number(text: str) -> Optional[float]:
    """Return the finite number in a text, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fraction(text: str) -> float:
    """Return a percentage as a fraction: 0.05 for 5% and for 5.

    Raises ValueError for other text, and for a number below 1 without the sign, which is ambiguous.
    """
    value = float(text.rstrip("% \t")) / 100 if PERCENTAGE.fullmatch(text.strip()) else math.nan
    if "%" not in text and 0 < value < 0.01:
        raise ValueError(
            f"{shortened(text)} may be a fraction or a percentage: write {1e4 * value:g}% or "
            f"{100 * value:g}%"
        )
    if not 0 < value <= LARGEST:
        raise ValueError(
            f"{shortened(text)} is not a percentage above 0% and up to 1000%, such as 3%"
        )
    return value


def percentage(text: str) -> float:
    """Return :func:`fraction` as an argparse type, with an error that argparse shows."""
    try:
        return fraction(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class GateLimits(NamedTuple):
    """The thresholds of ``--gate`` for each metric that it judges; None if not given."""

    throughput: Optional[float] = None
    instructions: Optional[float] = None
    energy: Optional[float] = None

    @classmethod
    def of(cls, given: Optional[Tuple[Optional[float], ...]]) -> GateLimits:
        """Return the value of the option, which is a plain tuple: execnet sends it to workers."""
        return cls(*given) if given is not None else cls()

    def __str__(self) -> str:
        found = {"": self.throughput, "instructions:": self.instructions, "energy:": self.energy}
        return ",".join(name + percent(value) for name, value in found.items() if value is not None)


NO_LIMITS = GateLimits()


def gate_limits(text: str) -> Tuple[Optional[float], ...]:
    """Return the thresholds in a text such as ``2%,instructions:1%``, as an argparse type."""
    found: Dict[str, float] = {}
    for part in text.split(","):
        name, colon, value = part.strip().rpartition(":")
        name = name if colon else "throughput"
        if name not in GateLimits._fields or name in found:
            raise argparse.ArgumentTypeError(
                f"{shortened(text)}: write 2%, instructions:1%, energy:5% or several with commas"
            )
        found[name] = percentage(value)
    return tuple(map(found.get, GateLimits._fields))


def name_of_test(nodeid: str) -> str:
    """Return a test's name, with its identifier in brackets, which may contain ``::``."""
    path, _, rest = nodeid.partition("::")
    function, bracket, identifier = (rest or path).partition("[")
    return function.split("::")[-1] + bracket + identifier


def distinct_names(names: Mapping[str, str]) -> Dict[str, str]:
    """Return a distinct name for each node id: the given name or, if needed, a longer one."""
    called = dict(names)
    for longer in (name_of_test, str):
        known = collections.Counter(called.values())
        called = {
            nodeid: longer(nodeid) if known[name] > 1 else name for nodeid, name in called.items()
        }
    return called


def parts_of(nodeid: str) -> Tuple[str, str, str]:
    """Return the file, which may contain brackets, the bench function and the identifier."""
    path, _, rest = nodeid.partition("::")
    function, _, identifier = rest.partition("[")
    return path, function, identifier[:-1]


def without_identifier(nodeid: str) -> str:
    """Return the node id of a case's bench function."""
    path, function, _ = parts_of(nodeid)
    return f"{path}::{function}"


def safe_name(text: str) -> str:
    """Return a text as a file name of letters, digits, ``-``, ``_`` and ``.``.

    A changed text gets a digest, so that two texts never share a name. Changes are needed for other
    characters, for more than 200, and for dots at the beginning, which would lead to another folder
    or hide the file.
    """
    safe = re.sub(r"^\.+|[^A-Za-z0-9_.-]", "_", text)[:LONGEST_NAME] or "_"
    if safe == text:
        return text
    digits = DIGITS_OF_CUT if len(text) > LONGEST_NAME else DIGITS
    # Undecodable bytes of a command line are lone surrogates.
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
    return f"{safe}.{digest[:digits]}"


def matches(pattern: str, nodeid: str) -> bool:
    """Return whether a pattern matches a case: ``*`` is anything, ``?`` one character.

    Brackets match themselves, so that a node id is a pattern for itself.
    """
    return fnmatch.fnmatchcase(nodeid, pattern.replace("[", "[[]"))
