"""Command-line options of the suite.

This module is also an installed pytest plugin (see pyproject.toml), so that pytest knows the
options before it looks for conftest files and can answer a misspelt path option.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import Any, List

import pytest

from ipubench.fixtures.case.options import DATA_MODES, PRECISIONS
from ipubench.fixtures.devices import KINDS
from ipubench.plugins.record.values import percentage, seconds, whole_number

# Options that take a path: pytest mistakes `--option PATH` for a test path (see check_spelling).
PATH_OPTIONS = (
    "--dataset-dir",
    "--results-dir",
    "--baseline",
    "--baseline-save",
    "--profile",
    "--save-graph",
    "--gate-policy",
    "--against",
    "--report",
)
# Options that decide what a case measures and how; a fresh process of a case gets the same ones.
MEASURING_OPTIONS = (
    "device",
    "device_id",
    "data",
    "precision",
    "case_options",
    "budget",
    "target_precision",
    "batches_per_step",
    "steps",
    "dataset_dir",
    "device_timeout",
    "allocator",
    "affinity",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; each dest is our own, none is shared with pytest-benchmark."""
    group = parser.getgroup("ipubench", "ipubench: what to run")
    group.addoption(
        "--device",
        default="auto",
        choices=("auto", *KINDS),
        help="device to run on; auto takes ipu, else cuda, else cpu (fake: the project's tests)",
    )
    group.addoption(
        "--device-id",
        type=whole_number(0),
        default=None,
        metavar="N",
        help="which GPU or IPU; chosen for you unless given",
    )
    group.addoption(
        "--device-timeout",
        type=seconds,
        default=600.0,
        metavar="SECONDS",
        help="how long to wait for a device that another run holds (600)",
    )
    group.addoption("--data", default=None, choices=DATA_MODES, help="where the input comes from")
    group.addoption(
        "--precision",
        default=None,
        choices=PRECISIONS,
        help="bits of the operations and of the master weights",
    )
    group.addoption(
        "--set",
        dest="case_options",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE...]",
        help="set an option of the selected cases; several values make a sweep; repeatable "
        "(--describe lists the options)",
    )
    group.addoption(
        "--batches-per-step",
        type=whole_number(1),
        default=None,
        metavar="N",
        help="batches run on the device per host call; calibrated on a host unless given",
    )
    group.addoption(
        "--steps",
        type=whole_number(1),
        default=None,
        metavar="N",
        help="exactly N timed rounds, no early stop",
    )
    group.addoption(
        "--zero-values",
        action="store_true",
        help="kernels: synthetic data of zeros instead of random values",
    )
    group.addoption(
        "--sweep", action="store_true", help="also run the inner points of batch-size sweeps"
    )
    group.addoption(
        "--describe",
        action="store_true",
        help="list the options of the selected cases and run nothing",
    )
    group.addoption(
        "--dry-run",
        action="store_true",
        help="print the command of each selected case, and what launches its instances, and run "
        "nothing",
    )
    group.addoption("--instance", default=None, metavar="HOST:PORT", help=argparse.SUPPRESS)
    group.addoption(
        "--dataset-dir",
        default=None,
        metavar="PATH",
        help="images for --data=real; else $DATASETS_DIR, else sample images made by the project",
    )

    group = parser.getgroup("ipubench-measuring", "ipubench: how to measure")
    group.addoption(
        "--budget",
        type=seconds,
        default=5.0,
        metavar="SECONDS",
        help="measured time per case at most (5)",
    )
    group.addoption(
        "--target-precision",
        type=percentage,
        default=0.01,
        metavar="PERCENT",
        help="stop when the 95%% interval of the median is this narrow (1%%)",
    )
    group.addoption(
        "--allocator",
        default="tuned",
        choices=("tuned", "system"),
        help="tuned keeps freed memory in the process, which makes CPU cases faster and steadier",
    )
    group.addoption(
        "--affinity",
        default="cores",
        choices=("cores", "system"),
        help="cores pins a CPU run to one thread per physical core; system leaves it alone",
    )

    group = parser.getgroup("ipubench-looking-inside", "ipubench: what a case does inside")
    group.addoption(
        "--profile",
        default=None,
        metavar="DIR",
        help="profile one call of each case instead of timing it: PopVision reports on an IPU, "
        "the framework's trace on a host",
    )
    group.addoption(
        "--save-graph",
        default=None,
        metavar="DIR",
        help="also write each case's graph, for Netron or TensorBoard",
    )

    group = parser.getgroup("ipubench-results", "ipubench: results, baselines and gate")
    group.addoption(
        "--results-dir",
        default="results",
        metavar="PATH",
        help="where each finished case is recorded at once (results/)",
    )
    group.addoption(
        "--resume",
        action="store_true",
        help="continue the latest run that had the same command line",
    )
    group.addoption(
        "--baseline-save",
        default=None,
        metavar="NAME",
        help="write the results to baselines/NAME.json (a value with a slash is a path)",
    )
    group.addoption(
        "--baseline",
        default=None,
        metavar="NAME",
        help="compare with baselines/NAME.json (a value with a slash is a path)",
    )
    group.addoption(
        "--gate",
        type=percentage,
        default=None,
        metavar="PERCENT",
        help="fail a case that is surely slower than its baseline, and by more than this: 2%%",
    )
    group.addoption(
        "--gate-cap",
        type=whole_number(1),
        default=16,
        metavar="N",
        help="fresh processes at most in which a suspected case is measured again (16)",
    )
    group.addoption(
        "--gate-policy",
        default=None,
        metavar="PATH",
        help="thresholds by case and metric (gate.yml in the project's folder, where there is one)",
    )
    group.addoption(
        "--processes",
        type=whole_number(1),
        default=None,
        metavar="N",
        help="processes that measure each case: 1, and 9 for a baseline that is saved",
    )
    group.addoption(
        "--against",
        default=None,
        metavar="PYTHON",
        help="measure each case in turns here and with this interpreter, and compare the two",
    )
    group.addoption(
        "--history",
        action="store_true",
        help="also keep the results below baselines/history, for trends",
    )
    group.addoption(
        "--report",
        default=None,
        metavar="DIR",
        help="write report.html, summary.md, results.csv and baseline.json into this folder",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse contradictions and settings that this version does not have."""
    check_spelling(config)
    for flag in PATH_OPTIONS:
        name = flag[2:].replace("-", "_")
        value = config.getoption(name)
        if value is not None and not value:
            raise pytest.UsageError(f"{flag}= names nothing; give a value")
    compares = config.option.baseline is not None or config.option.against is not None
    if config.option.gate is not None and not compares:
        raise pytest.UsageError(
            "--gate needs something to compare with: add --baseline=NAME or --against=PYTHON"
        )
    kept = [flag for flag in ("--baseline", "--baseline-save") if config.getoption(flag)]
    if config.option.profile is not None and kept:
        raise pytest.UsageError(f"{kept[0]}: --profile times nothing; leave one of them out")


def only_tests(config: pytest.Config) -> bool:
    """Whether the paths of the command line lead to the project's tests, which time nothing."""
    tests = config.rootpath / "tests"
    paths = [config.invocation_params.dir / word.split("::")[0] for word in config.args]
    return all(tests in (path, *path.parents) for path in paths)


def check_spelling(config: pytest.Config) -> None:
    """Answer `--option PATH`, which pytest takes for a test path, with the right spelling.

    pytest looks for its root folder before it knows our options. A path given as a word of its
    own then moves the root away, and the cases and their plugins are not found.
    """
    here = config.invocation_params.dir
    if config.inipath is not None and config.inipath.parent in (here, *here.parents):
        return
    words = [str(word) for word in config.invocation_params.args]
    for option, value in zip(words, words[1:]):
        if option in PATH_OPTIONS and os.path.exists(value):
            raise pytest.UsageError(
                f"pytest takes the word after {option} for a test path; write {option}={value}"
            )
    for word in words:
        if word.split("::")[0].endswith((".yml", ".yaml")) and (here / "conftest.py").exists():
            raise pytest.UsageError(
                f"{word} lies outside the project; name the project as well: pytest conftest.py "
                f"{shlex.quote(word)}"
            )


def measuring_arguments(config: pytest.Config) -> List[str]:
    """Return the command-line words that make another process measure as this one does."""
    words: List[str] = []
    for dest in MEASURING_OPTIONS:
        value = config.getoption(dest)
        flag = "--set" if dest == "case_options" else "--" + dest.replace("_", "-")
        values = value if isinstance(value, list) else [value]
        words += [f"{flag}={_as_word(dest, item)}" for item in values if item is not None]
    return words


def given_arguments(config: pytest.Config) -> List[str]:
    """Return those words of the command line that decide how a case is measured, as given."""
    flags = {
        "--set" if d == "case_options" else "--" + d.replace("_", "-"): d for d in MEASURING_OPTIONS
    }
    words = [str(word) for word in config.invocation_params.args]
    found: List[str] = []
    for word, value in zip(words, [*words[1:], ""]):
        flag = word.split("=", 1)[0]
        if word == "--zero-values":
            found.append(word)
        elif flag in flags:
            found.append(word if "=" in word else f"{word}={value}")
    return found


def _as_word(dest: str, value: Any) -> str:
    return f"{value:.6%}" if dest == "target_precision" else str(value)
