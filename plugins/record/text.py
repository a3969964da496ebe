"""Numbers as people read them, tables, and what people write on a command line."""

from __future__ import annotations

import argparse
import collections
import fnmatch
import hashlib
import math
import re
import shutil
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

EXIT_USAGE = 4  # of a command line, or a file, that cannot be used
# Of a table: between its columns, and its first column at least.
GAP = "  "
NARROWEST = 12
# Of a threshold: the largest, and how one is written.
LARGEST = 10.0  # 1000%: ten times more is another order of magnitude, not a tolerance
NUMBER = r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
#: Hours, minutes and seconds in this order, each of which may be missing; or seconds alone.
HOURS, MINUTES, SECONDS = "h(?:ours?|rs?)?", "m(?:in(?:ute)?s?)?", "s(?:ec(?:ond)?s?)?"
DURATION = re.compile(
    rf"(?:{NUMBER} ?{HOURS} ?)?(?:{NUMBER} ?{MINUTES} ?)?(?:{NUMBER} ?{SECONDS})?"
    rf"|{NUMBER} ?ms|{NUMBER}"
)
UNITS = (3600.0, 60.0, 1.0, 1e-3, 1.0)
# Of a file's name:
LONGEST_NAME = 200  # characters; a file's name has at most 255, and options of a run are added
DIGITS, DIGITS_OF_CUT = 6, 12  # of the digest; many long names begin alike
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
    """Return an amount per second as people read it: 98.76, 12,340, 1.235 M or 2 G."""
    for prefix, size in (("G", 1e9), ("M", 1e6)):
        if math.isfinite(value) and abs(value) >= size:
            return f"{value / size:.4g} {prefix}"
    return short_number(value)


def time_text(seconds: float) -> str:
    """Return a time with three digits in a unit that suits it: 220 ns, 15.7 µs, 2.31 ms, 1.2 s."""
    if not math.isfinite(seconds):
        return "-"
    if seconds >= 999.5:
        return f"{short_number(seconds)} s"
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Return a fraction as a percentage."""
    if not math.isfinite(value):
        return "-"
    rounded = round(100 * value, digits) + 0.0  # no minus before a zero
    return f"{rounded:{'+' if sign else ''}.{digits}f}%"


def number_text(value: Any) -> str:
    """Return a number, or '' where there is none."""
    return "" if value is None else short_number(value)


def share_text(value: Any, digits: int = 1) -> str:
    """Return a fraction as a percentage, or '' where there is none."""
    return "" if value is None else percent(value, digits)


def time_stamp() -> str:
    """Return the time now as records and histories hold it: UTC, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def minute_of(stamp: float) -> str:
    """Return a time since the epoch to the minute."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(stamp))


def cut_middle(text: str, width: int) -> str:
    """Return a text in at most ``width`` columns, cut in its middle, where names differ least."""
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return text[:head] + ".." + text[len(text) - (width - 2 - head) :]


def terminal_width() -> int:
    """Return the columns to print in: the terminal's, or 80."""
    return shutil.get_terminal_size((80, 24)).columns


def table(rows: Sequence[Sequence[str]], width: int) -> List[str]:
    """Align rows, the first of them the headings: the first column to the left, others right.

    The first column is cut in its middle, where names differ least, to fit into ``width``, and no
    further than the names stay different.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    others = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    widths[0] = max(NARROWEST, min(widths[0], width - others))
    widths[0] = apart_from([row[0] for row in rows], widths[0])
    return [aligned(row, widths, GAP) for row in rows]


def apart_from(names: Sequence[str], width: int) -> int:
    """Return the least width from ``width`` up in which different names stay so, though cut."""
    different = set(names)
    while len({cut_middle(name, width) for name in different}) < len(different):
        width += 1
    return width


def aligned(cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    """Return one line of a table, its first cell cut in its middle, figures never."""
    name = cut_middle(cells[0], widths[0]).ljust(widths[0])
    figures = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
    return gap.join([name, *figures]).rstrip()


class Parser(argparse.ArgumentParser):
    """The words of a program of ours: wrong ones end it with a line and the suite's exit code."""

    def error(self, message: str) -> NoReturn:
        """End the program."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def given(text: str) -> str:
    """Return a word, as an argparse type; not that of a shell's variable without a value."""
    if not text:
        raise argparse.ArgumentTypeError("it names nothing; give a value")
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
            f"{shortened(text)} is not a duration; write it as 30s, 10min or 1.5h (a number alone "
            "is seconds)"
        )
    return seconds


def duration_text(seconds: float) -> str:
    """Return a duration as it is written on a command line: 30s, 10min or 1.5h."""
    for unit, length in (("h", UNITS[0]), ("min", UNITS[1])):
        if seconds >= length and not seconds % (length / 2):
            return f"{seconds / length:.10g}{unit}"
    return f"{seconds:.10g}s"


def finite_number(text: str) -> Optional[float]:
    """Return the number that a text says, or None where it says none that is finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def fraction(text: str) -> float:
    """Return the fraction that a percentage stands for: 0.05 for 5% and for 5.

    Raises ValueError if it is none; a number below 1 without the sign may mean either.
    """
    value = float(text.rstrip("% \t")) / 100 if PERCENTAGE.fullmatch(text.strip()) else math.nan
    if "%" not in text and 0 < value < 0.01:
        raise ValueError(
            f"{shortened(text)} is a fraction or a percentage: write {1e4 * value:g}% or "
            f"{100 * value:g}%"
        )
    if not 0 < value <= LARGEST:
        raise ValueError(
            f"{shortened(text)} is not a percentage above 0% and up to 1000%, such as 3%"
        )
    return value


def percentage(text: str) -> float:
    """Return the same as an argparse type: argparse shows only an error of its own."""
    try:
        return fraction(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class GateLimits(NamedTuple):
    """What ``--gate`` allows of throughput and of instructions; None where it says nothing."""

    throughput: Optional[float] = None
    instructions: Optional[float] = None

    @classmethod
    def of(cls, given: Optional[Tuple[Optional[float], Optional[float]]]) -> GateLimits:
        """Return the value of the option, which is a plain tuple: execnet sends it to workers."""
        return cls(*given) if given is not None else cls()

    def __str__(self) -> str:
        found = {"": self.throughput, "instructions:": self.instructions}
        return ",".join(name + percent(value) for name, value in found.items() if value is not None)


NO_LIMITS = GateLimits()


def gate_limits(text: str) -> Tuple[Optional[float], Optional[float]]:
    """Return what ``2%``, ``instructions:1%`` or both of these allow, as an argparse type."""
    found: Dict[str, float] = {}
    for part in text.split(","):
        name, colon, value = part.strip().rpartition(":")
        name = name if colon else "throughput"
        if name not in GateLimits._fields or name in found:
            raise argparse.ArgumentTypeError(
                f"{shortened(text)}: write 2%, instructions:1% or 2%,instructions:1%"
            )
        found[name] = percentage(value)
    return found.get("throughput"), found.get("instructions")


def name_of_test(nodeid: str) -> str:
    """Return a test's own name, with its identifier in brackets, in which ``::`` may be."""
    path, _, rest = nodeid.partition("::")
    function, bracket, identifier = (rest or path).partition("[")
    return function.split("::")[-1] + bracket + identifier


def told_apart(names: Mapping[str, str]) -> Dict[str, str]:
    """Return what each node id is called: its name, or so much of the node id as is its own."""
    called = dict(names)
    for longer in (name_of_test, str):
        known = collections.Counter(called.values())
        called = {
            nodeid: longer(nodeid) if known[name] > 1 else name for nodeid, name in called.items()
        }
    return called


def parts_of(nodeid: str) -> Tuple[str, str, str]:
    """Return the file, in whose name brackets may be, the bench function and the identifier.

    A case without an identifier that each host measures is called ``function@host``.
    """
    path, _, rest = nodeid.partition("::")
    function, _, identifier = rest.partition("[")
    return path, function.partition("@")[0], identifier[:-1]


def without_identifier(nodeid: str) -> str:
    """Return the node id of a case's bench function."""
    path, function, _ = parts_of(nodeid)
    return f"{path}::{function}"


def safe_name(text: str) -> str:
    """Return a text as the name of one file: letters, digits, ``-``, ``_`` and ``.``.

    Where that is another text a digest is added, so that two texts never become one name: for other
    characters, for more than 200, and for dots at the beginning, which lead to another folder or
    hide a file.
    """
    safe = re.sub(r"^\.+|[^A-Za-z0-9_.-]", "_", text)[:LONGEST_NAME] or "_"
    if safe == text:
        return text
    digits = DIGITS_OF_CUT if len(text) > LONGEST_NAME else DIGITS
    # What a command line cannot decode is half a character.
    digest = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
    return f"{safe}.{digest[:digits]}"


def matches(pattern: str, nodeid: str) -> bool:
    """Tell whether a pattern means a case: ``*`` is anything, ``?`` one character.

    Brackets are themselves: every identifier has them, and is a pattern as it stands.
    """
    return fnmatch.fnmatchcase(nodeid, pattern.replace("[", "[[]"))
