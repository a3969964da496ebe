"""One reader is attacked: nearly sound inputs within bounds of time and memory.

An input that ends in another error than the reader's own, takes more than five seconds or more
memory is written to tests/nightly/fuzz/found/, where the tests try it from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from tests.nightly.fuzz.mutations import mutated
from tests.nightly.fuzz.readers import READERS, Reader

FOUND = Path(__file__).with_name("found")
MOST_SECONDS = 5.0
MOST_MEMORY = 500 << 20
KEPT = 3  # found inputs of one reader


class TooLong(BaseException):
    """A reader took more than its seconds."""


def folder_of(name: str) -> Path:
    """Return the folder of the inputs that were found for a reader."""
    return FOUND / name.replace(" ", "-").replace(".", "-")


def attempt(reader: Reader, folder: Path, content: bytes) -> Optional[str]:
    """Read an input; return what is wrong with how that ended, or None."""
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder, content)
    except reader.errors:
        return None
    except TooLong:
        return f"it took more than {MOST_SECONDS:g} s"
    except Exception:
        return "\n".join(traceback.format_exc().splitlines()[-4:])
    return None


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    # Time of this process alone: the machine may be busy.
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def attack(name: str, seconds: float, seed: int) -> Dict[str, Any]:
    """Attack one reader; return the number of inputs, the longest seconds, and what was found."""
    reader, chance = READERS[name], random.Random(seed)
    found: List[str] = []
    count, longest = 0, 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sound = reader.sound(folder)
        problem = attempt(reader, folder, sound)
        if problem:
            return {"count": 1, "longest": 0.0, "found": [f"a sound input: {problem}"]}
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MOST_MEMORY, hard))
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(found) < KEPT:
            content = mutated(sound, chance)
            begun = time.process_time()
            problem = attempt(reader, folder, content)
            longest = max(longest, time.process_time() - begun)
            count += 1
            if problem:
                found.append(f"{_keep(name, content)}: {problem}")
    return {"count": count, "longest": longest, "found": found}


def _keep(name: str, content: bytes) -> Path:
    path = folder_of(name) / hashlib.sha256(content).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
