"""Writes the files of a report."""

from __future__ import annotations

import contextlib
import os
import traceback
from pathlib import Path
from typing import Callable, Dict, Iterator, List

from ipubench.fixtures.machine.files import check_folder_writable, write_atomically
from ipubench.plugins.baseline import store
from ipubench.plugins.baseline.entries import complete
from ipubench.plugins.baseline.format import BaselineError, Document
from ipubench.plugins.report.exports import (
    bencher,
    csv_with_verdicts,
    github_action_benchmark,
    pytest_benchmark,
)
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.verdicts import verdicts_json
from ipubench.plugins.results.rows import Report
from ipubench.plugins.web.templates import is_installed

NO_LIBRARIES = "reports need jinja2: pip install jinja2"
#: A name that ends like this means a file, not a folder.
FILE_SUFFIXES = (".html", ".htm", ".md", ".csv", ".json")


class ReportError(Exception):
    """Raised if a report cannot be written; the message has the reason and the remedy."""


def check(folder: Path) -> None:
    """Create the folder and check that it is writable. Raises ReportError."""
    if not is_installed():
        raise ReportError(NO_LIBRARIES)
    if folder.suffix in FILE_SUFFIXES and not folder.is_dir():
        raise ReportError(
            f"{folder}: a report is a folder of several files; name a folder, such as "
            f"{folder.with_suffix('')}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_folder_writable(folder)
    except OSError as error:
        raise ReportError(
            f"{folder}: a report cannot be written there ({error.strerror or error}); name another "
            "folder"
        ) from None


def write(report: Report, folder: Path) -> List[str]:
    """Write all files of a report atomically; return their names.

    If some cannot be written, writes the others and then raises ReportError.
    """
    texts: Dict[str, Callable[[], str]] = {
        "report.html": lambda: page(report),
        "summary.md": lambda: markdown(report),
        "results.csv": lambda: csv_with_verdicts(report),
        "verdicts.json": lambda: verdicts_json(report),
        "pytest-benchmark.json": lambda: pytest_benchmark(report),
        "github-action-benchmark.json": lambda: github_action_benchmark(report),
        "bencher.json": lambda: bencher(report),
    }
    problems: List[str] = []
    with _noted(problems, "baseline.json"):
        _save(report, folder / "baseline.json")
    for name, text in texts.items():
        with _noted(problems, name):
            write_atomically(folder / name, text())
    if problems:
        raise ReportError(f"the report in {folder} is not complete: {'; '.join(problems)}")
    return ["baseline.json", *texts]


@contextlib.contextmanager
def _noted(problems: List[str], name: str) -> Iterator[None]:
    """Record why a file could not be written, so that the others and the table still are."""
    try:
        yield
    except BaselineError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{name} cannot be written: {error.strerror or error}")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        problems.append(f"{name} could not be made: {error!r} in {where}")


def _save(report: Report, path: Path) -> None:
    """Write this report's credible cases, without those of an earlier report in the file."""
    credible = [complete(b) for b in report.benchmarks if not b.record.implausible]
    store.write(path, Document.of(report.around, credible, report.runs))


def append_summary(report: Report) -> None:
    """Append the summary to the GitHub job's summary file. Raises ReportError."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        # A pipe without a reader would hang, so it is an error.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        number = os.open(path, flags, 0o666)
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(markdown(report) + "\n")
    except Exception as error:
        raise ReportError(f"GITHUB_STEP_SUMMARY={path} cannot be written: {error}") from error
