"""Baseline files: where they are, reading one or a finished run, changing one under its lock."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Sequence, Set

from msgspec.structs import replace

from ipubench.fixtures.case.errors import some_of
from ipubench.fixtures.case.untrusted import BadFile, read_bytes
from ipubench.fixtures.machine.files import (
    check_folder_writable,
    kind_of,
    user_path,
    write_atomically,
)
from ipubench.fixtures.machine.locks import LockTimeout, locked
from ipubench.plugins.baseline.entries import (
    Place,
    complete,
    in_order,
    place_of,
    replaced,
    why_disturbed,
)
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

FOLDER, SUFFIX = "baselines", ".json"
LOCK_SECONDS = 60.0
MOST_NAMES = 10


def baseline_path(name: str, root: Path) -> Path:
    """Return the file that ``--baseline=NAME`` means: a value with a slash is a path.

    A name may end in the file's own ``.json``. Raises BaselineError where that path is of no use.
    """
    if "/" in name or "\\" in name:
        try:
            return user_path(name)
        except OSError as error:
            raise BaselineError(f"the baseline {name} cannot be found: {error}") from error
    return root / FOLDER / (name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")


def path_text(path: Path, root: Path) -> str:
    """Return a path as a run shows it: from the project's folder on, where it is in that."""
    try:
        return str(path.relative_to(root))
    except ValueError:
        return str(path)


def exists(path: Path) -> bool:
    """Tell whether a file or a folder is there. Raises BaselineError where that cannot be seen."""
    return bool(kind(path))


def kind(path: Path) -> str:
    """Return what is there, as ``kind_of``. Raises BaselineError where that cannot be seen."""
    try:
        return kind_of(path)
    except OSError as error:
        raise BaselineError(f"{path} cannot be read: {error.strerror or error}") from error


def baselines_in(folder: Path) -> List[Path]:
    """Return the baselines in a folder, by name. Raises BaselineError where it cannot be read."""
    return [path for path in listed(folder) if path.suffix == SUFFIX]


def listed(folder: Path) -> List[Path]:
    """Return what a folder holds, by name; nothing where there is no folder.

    What begins with a dot is left out: locks, and half a file of a process that was killed. Raises
    BaselineError where the folder cannot be read: a pattern of pathlib then finds nothing.
    """
    try:
        names = sorted(os.listdir(str(folder)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BaselineError(f"{folder} cannot be read: {error.strerror or error}") from error
    return [folder / name for name in names if not name.startswith(".")]


def check_writable(path: Path) -> None:
    """See whether a baseline can be written, of which nothing is made. Raises BaselineError."""
    target = _target(path)
    try:
        check_folder_writable(next(folder for folder in target.parents if folder.exists()))
    except OSError as error:
        raise BaselineError(
            f"the baseline {path} cannot be written: {error.strerror or error}; name another "
            "place with --baseline-save=PATH"
        ) from error


def load_all(path: Path) -> List[Benchmark]:
    """Return all entries, of all machines and configurations. Raises BaselineError."""
    return list(load_document(path).benchmarks)


def entries_in(path: Path) -> List[Benchmark]:
    """Return the entries of a baseline, none where there is no file. Raises BaselineError."""
    return load_all(path) if exists(path) else []


def sound_places(path: Path) -> Set[Place]:
    """Return which cases have an entry to judge by, and of which machine. Raises BaselineError.

    By an entry that others disturbed nothing is ever judged, so there is no reason to keep it.
    """
    return {place_of(entry) for entry in entries_in(path) if not why_disturbed(entry)}


def load_document(path: Path, wanted: Callable[[str], bool] = lambda nodeid: True) -> Document:
    """Return a whole file, checked; only the ``wanted`` cases of it.

    Raises BaselineError for a file that cannot be trusted.
    """
    try:
        # Some editors begin a file with a mark, which is none of JSON's.
        text = read_bytes(path, MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise BaselineError(
            f"there is no baseline {path}; write one with --baseline-save{_others(path)}"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, BadFile) else error
        raise BaselineError(f"the baseline {path} cannot be read: {reason}") from error
    return decode(path, text, wanted)


def _others(path: Path) -> str:
    names = [other.stem for other in baselines_in(path.parent)]
    return f"; there are: {some_of(names, MOST_NAMES)}" if names else ""


def save(path: Path, document: Document) -> None:
    """Put what a run measured into a baseline; raises BaselineError where that cannot be done.

    The run's cases replace what the same machine had of them; all else in the file stays. How the
    run ended is no part of a baseline.
    """
    new = [complete(one) for one in document.benchmarks]
    change(path, lambda old: replaced(old, new), document)


def change(
    path: Path,
    rule: Callable[[Sequence[Benchmark]], List[Benchmark]],
    around: Optional[Around] = None,
) -> None:
    """Replace a file's entries by ``rule(entries)`` while no other process changes it.

    What surrounds the entries (machine_info and the like) is the file's own, or ``around``, with
    which the file need not exist. Numbers that JSON has not become null. Raises BaselineError, also
    for entries that could not be read again.
    """
    path = _target(path)
    with _locked(path):
        there = around is None or exists(path)
        old = load_document(path) if there else Document(benchmarks=())
        new = replace(old, benchmarks=rule(old.benchmarks))
        write(path, new if around is None else Document.of(around, new.benchmarks))


def write(path: Path, document: Document) -> None:
    """Write a whole file of its own, whatever was there; raises BaselineError as ``change``."""
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
    """Return the file that a path leads to: a symbolic link stays, and its file is changed.

    Raises BaselineError.
    """
    if not path.name:
        raise BaselineError(f"{path} names no file; give a baseline a name")
    # Not Path.resolve, which before Python 3.13 fails where links lead to each other.
    return Path(os.path.realpath(str(path)))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a file: changes read, change and write, so two would lose one."""
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
