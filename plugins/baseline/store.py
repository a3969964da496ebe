"""Finds, reads and changes baseline files; changes hold a file lock."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Sequence, Set

from msgspec.structs import replace

from ipubench.fixtures.case.errors import some_of
from ipubench.fixtures.case.untrusted import BadFile, read_bytes
from ipubench.fixtures.machine import files
from ipubench.fixtures.machine.files import (
    check_folder_writable,
    kind_of,
    user_path,
    write_atomically,
)
from ipubench.fixtures.machine.locks import LockTimeout, locked
from ipubench.plugins.baseline.entries import complete, in_order, replaced, why_disturbed
from ipubench.plugins.baseline.format import (
    MOST_BYTES,
    BaselineError,
    Document,
    check_size,
    checked,
    decode,
)
from ipubench.plugins.record.files import json_text, storable
from ipubench.plugins.record.structs import Around, Benchmark, as_plain
from ipubench.plugins.results.places import EntryKey, place_of

FOLDER, SUFFIX = "baselines", ".json"
LOCK_SECONDS = 60.0
MOST_NAMES = 10


def baseline_path(name: str, root: Path) -> Path:
    """Return the file for ``--baseline=NAME``; a value with a slash is a path.

    A name may end in ``.json``. Raises BaselineError if the path cannot be used.
    """
    if "/" in name or "\\" in name:
        try:
            return user_path(name)
        except OSError as error:
            raise BaselineError(f"the baseline {name} cannot be found: {error}") from error
    return root / FOLDER / (name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")


def path_text(path: Path, root: Path) -> str:
    """Return a path as text, relative to the project's folder if it is inside."""
    try:
        return str(path.relative_to(root))
    except ValueError:
        return str(path)


def exists(path: Path) -> bool:
    """Return whether a file or a folder exists. Raises BaselineError if that is unreadable."""
    return bool(kind(path))


def kind(path: Path) -> str:
    """Return the kind of a path, as ``kind_of``. Raises BaselineError if it is unreadable."""
    try:
        return kind_of(path)
    except OSError as error:
        raise BaselineError(f"{path} cannot be read: {error.strerror or error}") from error


def baselines_in(folder: Path) -> List[Path]:
    """Return the baselines in a folder, sorted. Raises BaselineError if it cannot be read."""
    return [path for path in listed(folder) if path.suffix == SUFFIX]


def listed(folder: Path) -> List[Path]:
    """Return the contents of a folder, sorted; nothing if it does not exist.

    Skips names that begin with a dot: locks, and partial files of killed processes. Raises
    BaselineError if the folder cannot be read; pathlib's glob would just find nothing.
    """
    try:
        names = sorted(os.listdir(str(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BaselineError(f"{folder} cannot be read: {error.strerror or error}") from error
    return [folder / name for name in names if not name.startswith(".")]


def numbered_in(folder: Path) -> List[Path]:
    """Return the files of a folder of pytest-benchmark or of a machine's history, oldest first.

    Their names begin with a number or the time. Raises BaselineError if it cannot be read.
    """
    return [path for path in baselines_in(folder) if path.name[:4].isdigit()]


def newest_in(path: Path) -> Path:
    """Return the newest file of :func:`numbered_in`; a path that is no folder as it is.

    Raises BaselineError for a folder without one.
    """
    if kind(path) != files.FOLDER:
        return path
    numbered = numbered_in(path)
    if not numbered:
        raise BaselineError(f"the folder {path} has no file 0001_NAME.json: name a baseline's file")
    return numbered[-1]


def check_writable(path: Path) -> None:
    """Raise BaselineError if a baseline cannot be written. Leaves nothing behind."""
    target = _target(path)
    try:
        check_folder_writable(next(folder for folder in target.parents if folder.exists()))
    except OSError as error:
        raise BaselineError(
            f"the baseline {path} cannot be written: {error.strerror or error}; choose another "
            "place with --baseline-save=PATH"
        ) from error


def load_all(path: Path) -> List[Benchmark]:
    """Return all entries, of all machines and configurations. Raises BaselineError."""
    return list(load_document(path).benchmarks)


def entries_in(path: Path) -> List[Benchmark]:
    """Return the entries of a baseline; none without a file. Raises BaselineError."""
    return list(load_document(path, imports=False).benchmarks) if exists(path) else []


def sound_places(path: Path) -> Set[EntryKey]:
    """Return the cases and machines of usable entries. Raises BaselineError.

    A disturbed entry is never used for a verdict, so there is no reason to keep it.
    """
    return {place_of(entry) for entry in entries_in(path) if not why_disturbed(entry)}


def load_document(
    path: Path, wanted: Callable[[str], bool] = lambda nodeid: True, imports: bool = True
) -> Document:
    """Return the ``wanted`` cases of a file, after checking it.

    ``imports``: whether it may be a file of pytest-benchmark, which we never change. Raises
    BaselineError for a damaged file.
    """
    try:
        # Some editors begin a file with a byte order mark, which JSON lacks.
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise BaselineError(
            f"there is no baseline {path}; write one with --baseline-save{_others(path)}"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, BadFile) else error
        raise BaselineError(f"the baseline {path} cannot be read: {reason}") from error
    return decode(path, text, wanted, imports)


def _others(path: Path) -> str:
    names = [other.stem for other in baselines_in(path.parent)]
    return f"; there are: {some_of(names, MOST_NAMES)}" if names else ""


def save(path: Path, document: Document) -> None:
    """Add a run's results to a baseline. Raises BaselineError.

    The run's cases replace those of the same machine; everything else in the file stays. A baseline
    does not store how the run ended.
    """
    new = [complete(one) for one in document.benchmarks]
    change(path, lambda old: replaced(old, new), document)


def change(
    path: Path,
    rule: Callable[[Sequence[Benchmark]], List[Benchmark]],
    around: Optional[Around] = None,
) -> None:
    """Replace a file's entries by ``rule(entries)`` under its lock.

    The other top-level fields (machine_info and so on) come from ``around``, else from the file;
    with ``around`` the file need not exist. NaN and infinity become null. Raises BaselineError,
    also for entries that could not be read back.
    """
    path = _target(path)
    with _locked(path):
        there = around is None or exists(path)
        old = load_document(path, imports=False) if there else Document(benchmarks=())
        new = replace(old, benchmarks=rule(old.benchmarks))
        write(path, new if around is None else Document.of(around, new.benchmarks))


def write(path: Path, document: Document) -> None:
    """Write a file, replacing what was there. Raises BaselineError as :func:`change` does."""
    path = _target(path)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = storable(as_plain(replace(document, benchmarks=in_order(document.benchmarks))))
        try:
            checked(whole)
            text = json_text(whole)
            check_size(text)
        except ValueError as error:
            raise BaselineError(f"{path} was not written: {error}") from None
        write_atomically(path, text)


def _target(path: Path) -> Path:
    """Return the target of a path: a symbolic link stays, and its target is changed.

    Raises BaselineError.
    """
    if not path.name:
        raise BaselineError(f"{path} does not name a file; give the baseline a name")
    # Not Path.resolve, which fails on circular links before Python 3.13.
    return Path(os.path.realpath(str(path)))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file's lock: a change reads and then writes, so two at once would lose one."""
    path = _target(path)
    lock = path.with_name(f".{path.name}.lock")
    with contextlib.ExitStack() as stack:
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(lock, LOCK_SECONDS))
            except LockTimeout:
                raise BaselineError(
                    f"the baseline {path} has been locked by another process for "
                    f"{LOCK_SECONDS:.0f} s (lock: {lock}); try again when that has ended"
                ) from None
        yield


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RecursionError) as error:
        raise BaselineError(f"the baseline {path} cannot be written: {error}") from error
