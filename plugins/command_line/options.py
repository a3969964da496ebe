"""Declares the command-line options, one function for each group."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from typing import Any, Dict, List

from ipubench.fixtures.case.options import DATA_MODES, PRECISIONS
from ipubench.fixtures.command_line import PREFIX
from ipubench.plugins.command_line import spelling
from ipubench.plugins.record.text import duration, gate_limits, percentage, whole_number


@dataclasses.dataclass(frozen=True)
class Option:
    """One option; registration.py gives it to pytest."""

    name: str
    dest: str
    settings: Dict[str, Any]

    @property
    def is_hidden(self) -> bool:
        """Return whether only processes that we start use it."""
        return self.settings["help"] is argparse.SUPPRESS

    def hidden(self) -> Dict[str, Any]:
        """Return the settings that hide the option from ``--help``."""
        return {**self.settings, "help": argparse.SUPPRESS}


@dataclasses.dataclass(frozen=True)
class Section:
    """A group of options."""

    title: str
    options: List[Option] = dataclasses.field(default_factory=list)

    def addoption(self, flag: str, dest: str = "", **settings: Any) -> None:
        """Declare an option; ``dest``: its name in ``Options``, if it differs from the flag."""
        name = flag[2:]
        self.options.append(Option(name, PREFIX + (dest or name.replace("-", "_")), settings))


@functools.lru_cache(maxsize=None)
def sections() -> List[Section]:
    """Return all options, in groups."""
    what = Section("what to run")
    _add_device_and_data(what)
    _add_case_options(what)
    _add_hosts(what)
    _add_listings(what)
    how = Section("how to measure")
    _add_measuring(how)
    _add_counting(how)
    inside = Section("what a case does inside")
    _add_inspection(inside)
    results = Section("results, baselines and gate")
    _add_results(results)
    _add_comparisons(results)
    _add_against(results)
    _add_reports(results)
    return [what, how, inside, results]


def _add_device_and_data(group: Section) -> None:
    """The device, the data and the precision."""
    group.addoption(
        "--device",
        default="auto",
        metavar="KIND",
        help="device to run on: cpu, cuda, ipu, ipu-model, a kind of your own, or auto, which "
        "takes ipu, else cuda, else cpu",
    )
    group.addoption(
        "--device-id",
        type=whole_number(0),
        metavar="N",
        help="number of the GPU or IPU; by default a free one",
    )
    group.addoption(
        "--device-timeout",
        type=duration,
        default="10min",
        metavar="DURATION",
        help="how long to wait for a device that another run holds (10min)",
    )
    group.addoption(
        "--executable-cache",
        metavar="DIR",
        help="folder that keeps compiled IPU programs of all frameworks for later runs; by default "
        "each case's fresh processes share them",
    )
    group.addoption(
        "--data",
        type=spelling.one_of(DATA_MODES, spelling.DATA),
        choices=DATA_MODES,
        help="where the input comes from",
    )
    group.addoption(
        "--dataset-dir",
        metavar="PATH",
        help="images for --data=real; by default $DATASETS_DIR, else generated sample images",
    )
    group.addoption(
        "--precision",
        type=spelling.one_of(PRECISIONS, spelling.PRECISIONS),
        choices=PRECISIONS,
        help="bits of the operations and of the master weights",
    )


def _add_case_options(group: Section) -> None:
    """The options of the cases, and whether more cases run."""
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
        metavar="N",
        help="batches run on the device per host call; by default calibrated on a host",
    )
    group.addoption(
        "--steps",
        type=whole_number(1),
        metavar="N",
        help="exactly N timed rounds, no early stop",
    )
    group.addoption(
        "--zero-values",
        action="store_true",
        help="kernels: synthetic data of zeros instead of random values",
    )
    group.addoption(
        "--sweep",
        action="store_true",
        help="also run the middle of sweeps, additional configurations and other data modes",
    )


def _add_hosts(group: Section) -> None:
    """The hosts of instances; pytest-xdist has ``--tx``."""
    group.addoption(
        "--launcher-args",
        type=spelling.shell_arguments,
        metavar="WORDS",
        help='for mpirun or poprun, which start a case\'s instances: --launcher-args="--host A,B"',
    )


def _add_listings(group: Section) -> None:
    """Runs that only list cases, and an option for the processes that we start."""
    group.addoption(
        "--describe",
        action="store_true",
        help="list the options of the selected cases and run nothing",
    )
    group.addoption(
        "--dry-run",
        action="store_true",
        help="print the command of each selected case and of its instances, and run nothing",
    )
    group.addoption("--instance", metavar="ADDRESS", help=argparse.SUPPRESS)


def _add_measuring(group: Section) -> None:
    """The time for a case, and the settings of its process."""
    group.addoption(
        "--budget",
        type=duration,
        default="5s",
        metavar="DURATION",
        help="longest measuring time per case (5s)",
    )
    group.addoption(
        "--target-precision",
        type=percentage,
        default="1%",
        metavar="PERCENT",
        help="stop when the 95%% interval of the median is this narrow (1%%)",
    )
    group.addoption(
        "--wait-for-quiet",
        type=duration,
        metavar="DURATION",
        help="before each case, wait until the machine is quiet, but at most this long, such as "
        "2min",
    )
    group.addoption(
        "--energy",
        action="store_true",
        help="also measure the energy of an item: on a CPU with RAPL, on a GPU with NVML",
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
        help="cores pins a CPU run to one thread per physical core; system does not pin it",
    )


def _add_counting(group: Section) -> None:
    """What is counted in addition to the times, and the process that counts."""
    group.addoption(
        "--count",
        choices=("instructions",),
        help="also count the instructions of each case's call, which other programs do not "
        "disturb: with the processor's performance unit, else with valgrind",
    )
    group.addoption("--counting", metavar="WAY", help=argparse.SUPPRESS)


def _add_inspection(group: Section) -> None:
    """Profiles and graphs of the cases."""
    group.addoption(
        "--profile",
        metavar="DIR",
        help="profile one call of each case instead of timing it: PopVision reports on an IPU, "
        "the framework's trace on a host",
    )
    group.addoption(
        "--profile-on-regression",
        action="store_true",
        help="run a regressed case again under a profiler, here and with --against also there, and "
        "show the operations whose share of the time grew",
    )
    group.addoption(
        "--save-graph",
        metavar="DIR",
        help="also write each case's graph, for Netron or TensorBoard",
    )


def _add_results(group: Section) -> None:
    """The places of results."""
    group.addoption(
        "--results-dir",
        default="results",
        metavar="PATH",
        help="folder for the journal, which gets each case when it ends (results/)",
    )
    group.addoption(
        "--resume",
        action="store_true",
        help="continue the latest run that had the same command line",
    )
    group.addoption(
        "--baseline-save",
        metavar="NAME",
        help="write the results to baselines/NAME.json (a value with a slash is a path)",
    )
    group.addoption(
        "--keep-disturbed",
        action="store_true",
        help="let disturbed cases replace others in the baseline",
    )


def _add_comparisons(group: Section) -> None:
    """The baseline, and how much slower than it a case may be."""
    group.addoption(
        "--baseline",
        metavar="NAME",
        help="compare with baselines/NAME.json (a value with a slash is a path, also of a file of "
        "pytest-benchmark)",
    )
    group.addoption(
        "--gate",
        type=gate_limits,
        metavar="PERCENT",
        help="fail a case that is certainly slower than its baseline by more than this, such as "
        "2%%; instructions:1%% judges instructions and times nothing, 2%%,instructions:1%% both; "
        "2%%,energy:5%% also judges the energy of an item",
    )
    group.addoption(
        "--gate-cap",
        type=whole_number(1),
        default=16,
        metavar="N",
        help="the most fresh processes of a case, or with --against the most pairs of them (16)",
    )
    group.addoption(
        "--gate-time",
        type=duration,
        metavar="DURATION",
        help="time limit for the fresh processes and pairs of all cases, such as 5min; cases that "
        "are undecided then are inconclusive",
    )
    group.addoption(
        "--gate-policy",
        metavar="PATH",
        help="thresholds by case and metric (gate.yml in the project's folder, if it exists)",
    )
    group.addoption(
        "--gate-inconclusive",
        choices=("pass", "fail"),
        help="the outcome of a case that the gate could not decide (pass, unless gate.yml has "
        "inconclusive: fail)",
    )
    group.addoption(
        "--processes",
        type=whole_number(1),
        metavar="N",
        help="processes that measure each case: 1, or 9 when a baseline is saved",
    )


def _add_against(group: Section) -> None:
    """The other environment that a case is measured in, in turns, in the same run."""
    group.addoption(
        "--against",
        metavar="PYTHON|git:REV|pip:PACKAGE==VERSION[,...]",
        help="measure each case in turns here and with this interpreter, in a worktree of this "
        "revision (git:main, git:merge-base:main), or with these versions of packages "
        "(pip:numpy==1.26.4,pandas==2.2.3), and compare the two",
    )
    group.addoption(
        "--against-setup",
        metavar="COMMAND",
        help="make an environment in the worktree of --against=git:REV with this command",
    )
    group.addoption(
        "--against-python",
        metavar="PATH",
        help="interpreter for --against=git:REV: by default this one, or after --against-setup "
        ".venv/bin/python there",
    )


def _add_reports(group: Section) -> None:
    """The history and the report."""
    group.addoption(
        "--history",
        action="store_true",
        help="also keep the results below baselines/history, for trends",
    )
    group.addoption(
        "--report",
        metavar="DIR",
        help="write report.html, summary.md, results.csv and baseline.json into this folder",
    )
