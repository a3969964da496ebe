"""Counts instructions in valgrind's callgrind, which emulates the processor.

Callgrind takes orders from the program that it runs: a *client request* is a sequence of
instructions that does nothing elsewhere. A few bytes of machine code make one, so that no compiler
is needed. Outside of a count the program runs without instrumentation, which is much faster.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List

from ipubench.fixtures.case.errors import CaseError
from ipubench.plugins.count.counter import CALLGRIND, Counter, Functions

#: ``f(request, default)``: makes a client request with the numbers at ``request``.
CODE = {
    # mov rax,rdi; mov rdx,rsi; rol rdi,3; rol rdi,13; rol rdi,61; rol rdi,51; xchg rbx,rbx
    # mov rax,rdx; ret
    "x86_64": "4889f8 4889f2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3",
    # mov x4,x0; mov x3,x1; ror x12,x12,#3; #13; #51; #61; orr x10,x10,x10; mov x0,x3; ret
    "aarch64": "e40300aa e30301aa 8c0dcc93 8c35cc93 8ccdcc93 8cf5cc93 4a010aaa e00303aa c0035fd6",
}
RUNNING_ON_VALGRIND = 0x1001
_BASE = (ord("C") << 24) | (ord("T") << 16)
DUMP, START, STOP = _BASE, _BASE + 4, _BASE + 5
OUT = "callgrind.out"
VERSION_SECONDS = 20
#: What no processor of callgrind has; a library that would use it runs other code there.
EMULATES = "at most AVX2: a library that would choose AVX-512 runs its code for AVX2"
RECURSION = re.compile(r"'\d+$")
#: A line of costs: the position, which may be relative, and the number of instructions.
COSTS = re.compile(r"(?:[+-]?\d+|\*|0x[0-9a-f]+) (\d+)$")


def command(folder: Path) -> List[str]:
    """Return the words before a program's own that have callgrind run it."""
    return [
        "valgrind",
        "-q",
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--log-file={folder / 'log'}",
        # A forked child gets files of its own.
        f"--callgrind-out-file={folder / OUT}.%p",
    ]


@functools.lru_cache(maxsize=None)
def version() -> str:
    """Return the version of the valgrind that is installed; '' if it does not run."""
    try:
        found = subprocess.run(
            ["valgrind", "--version"],  # noqa: S607  of the PATH, as it will run
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode(errors="replace").strip().replace("valgrind-", "")


def delete_dumps(folder: Path) -> None:
    """Delete the files of a child that has ended: a run with many cases would make gigabytes."""
    for path in folder.glob(f"{OUT}.*"):
        path.unlink()


class Callgrind(Counter):
    """Counts in this process, which callgrind runs; its dumps go into a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        # Executable from the start: some systems refuse to make memory so later.
        code = bytes.fromhex(CODE[platform.machine()])
        protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        try:
            self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=protection)
        except OSError as error:
            raise CaseError(f"the system allows no code in memory: {error.strerror}") from None
        self._memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._call = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)(address)
        self._numbers = (ctypes.c_uint64 * 6)()
        self._dumps = 0
        if not self._request(RUNNING_ON_VALGRIND):
            raise CaseError("this process does not run in valgrind, or valgrind cannot be reached")

    def _request(self, request: int) -> int:
        self._numbers[0] = request
        return int(self._call(ctypes.addressof(self._numbers), 0))

    def start(self) -> None:
        """Instrument the program from now on."""
        self._request(START)

    def count(self, run: Callable[[], Any]) -> int:
        """Count the instructions of one run; callgrind writes them into a file."""
        # Its request to set counts to zero leaves some of what ran before; a dump does not.
        self._request(DUMP)
        try:
            run()
        finally:
            self._request(DUMP)
            self._dumps += 2
        return self._dumps

    def stop(self) -> None:
        """Instrument no more."""
        self._request(STOP)

    def total(self, number: int) -> float:
        """Return the instructions of a count."""
        return float(total_of(self._text(number)))

    def functions(self, number: int) -> Functions:
        """Return the instructions of a count by function of the compiled code."""
        return functions_of(self._text(number))

    def _text(self, number: int) -> str:
        path = self._folder / f"{OUT}.{os.getpid()}.{number}"
        return path.read_text(encoding="utf-8", errors="replace")

    def describe(self) -> Dict[str, Any]:
        """Return which valgrind counts, and what its processor lacks."""
        return {
            "by": CALLGRIND,
            "valgrind": version(),
            "machine": platform.machine(),
            "emulates": EMULATES,
        }


def total_of(text: str) -> int:
    """Return the instructions in a dump of callgrind."""
    found = re.search(r"^(?:totals|summary): (\d+)$", text, re.MULTILINE)
    totals = re.search(r"^totals: (\d+)$", text, re.MULTILINE) or found
    if totals is None:
        raise CaseError("callgrind wrote no total")
    return int(totals.group(1))


def functions_of(text: str) -> Functions:
    """Return the instructions of each function of a dump, without those that it calls.

    Names are written once and are numbers afterwards. Depths of recursion count as one function.
    """
    names: Dict[str, str] = {}
    found: Dict[str, float] = {}
    current = ""
    called = False  # the line after `calls=` has the instructions of the function that is called
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key in ("fn", "cfn"):
            number, _, name = value.partition(" ")
            if name:
                names[number] = RECURSION.sub("", name)
            if key == "fn":
                current = names.get(number, number)
        elif key == "calls":
            called = True
        elif COSTS.match(line):
            if not called:
                found[current] = found.get(current, 0.0) + float(line.rpartition(" ")[2])
            called = False
    return found
