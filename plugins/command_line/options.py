"""The command-line options, one function for each group of them."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from typing import Any, Dict, List

from ipubench.fixtures.case.options import DATA_MODES, PRECISIONS
from ipubench.fixtures.command_line import PREFIX
from ipubench.fixtures.devices import KINDS
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
        """Whether it is for processes that we start, and for nobody's hand."""
        return self.settings["help"] is argparse.SUPPRESS

    def hidden(self) -> Dict[str, Any]:
        """Return the settings by which an option is not shown."""
        return {**self.settings, "help": argparse.SUPPRESS}


@dataclasses.dataclass(frozen=True)
class Section:
    """The options of one subject."""

    title: str
    options: List[Option] = dataclasses.field(default_factory=list)

    def addoption(self, flag: str, dest: str = "", **settings: Any) -> None:
        """Declare an option; ``dest``: its name among Options, if the flag is another."""
        name = flag[2:]
        self.options.append(Option(name, PREFIX + (dest or name.replace("-", "_")), settings))


@functools.lru_cache(maxsize=None)
def sections() -> List[Section]:
    """Return all options."""
    what = Section("what to run")
    _add_device_and_data(what)
    _add_case_options(what)
    _add_hosts(what)
    _add_listings(what)
    how = Section("how to measure")
    _add_measuring(how)
    _add_counting(how)
    inside = Section("what a case does inside")
    _add_looking_inside(inside)
    results = Section("results, baselines and gate")
    _add_results(results)
    _add_comparisons(results)
    _add_against(results)
    _add_reports(results)
    return [what, how, inside, results]


def _add_device_and_data(group: Section) -> None:
    """Where the cases run, on what data and at which precision."""
    group.addoption(
        "--device",
        default="auto",
        type=spelling.one_of(("auto", *KINDS), spelling.DEVICES),
        choices=("auto", *KINDS),
        help="device to run on; auto takes ipu, else cuda, else cpu (fake: the project's tests)",
    )
    group.addoption(
        "--device-id",
        type=whole_number(0),
        metavar="N",
        help="which GPU or IPU; chosen for you unless given",
    )
    group.addoption(
        "--device-timeout",
        type=duration,
        default=600.0,
        metavar="DURATION",
        help="how long to wait for a device that another run holds (10min)",
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
        help="images for --data=real; else $DATASETS_DIR, else sample images made by the project",
    )
    group.addoption(
        "--precision",
        type=spelling.one_of(PRECISIONS, spelling.PRECISIONS),
        choices=PRECISIONS,
        help="bits of the operations and of the master weights",
    )


def _add_case_options(group: Section) -> None:
    """What the cases do, and which others run as well."""
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
        help="batches run on the device per host call; calibrated on a host unless given",
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
        help="also run the inner points of sweeps, further configurations and other modes of data",
    )


def _add_hosts(group: Section) -> None:
    """On which hosts; ``--tx`` is pytest-xdist's."""
    group.addoption(
        "--hosts",
        metavar="FILE",
        help="measure on the hosts that this file lists, one a line; or --tx ssh=HOST for each",
    )
    group.addoption(
        "--each-host",
        action="store_true",
        help="measure each case on every host that can, and name hosts that are slower than others",
    )
    group.addoption(
        "--launcher-args",
        type=spelling.shell_words,
        metavar="WORDS",
        help='for mpirun or poprun, which start a case\'s instances: --launcher-args="--host A,B"',
    )


def _add_listings(group: Section) -> None:
    """Runs that list cases, and the run that another one starts."""
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
    group.addoption("--instance", metavar="ADDRESS", help=argparse.SUPPRESS)
    group.addoption(
        "--include-convergence",
        action="store_true",
        help="also run the entries of a benchmarks.yml that train to convergence (_conv)",
    )


def _add_measuring(group: Section) -> None:
    """How long and in which process settings a case is measured."""
    group.addoption(
        "--budget",
        type=duration,
        default=5.0,
        metavar="DURATION",
        help="measured time per case at most (5s)",
    )
    group.addoption(
        "--within",
        type=duration,
        metavar="DURATION",
        help="fit the selected cases into this time: first fewer rounds, then fewer cases, which "
        "are named: 10min",
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
        help="wait before each case until other programs leave the machine alone, so long at most "
        "(2min), then measure",
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


def _add_counting(group: Section) -> None:
    """What is counted beside the times, and the process that counts."""
    group.addoption(
        "--count",
        choices=("instructions",),
        help="also count the instructions of each case's call, which other programs do not "
        "disturb: with the processor's performance unit, else with valgrind",
    )
    group.addoption("--counting", metavar="WAY", help=argparse.SUPPRESS)


def _add_looking_inside(group: Section) -> None:
    """What a case leaves for people who look inside it."""
    group.addoption(
        "--profile",
        metavar="DIR",
        help="profile one call of each case instead of timing it: PopVision reports on an IPU, "
        "the framework's trace on a host",
    )
    group.addoption(
        "--profile-on-regression",
        action="store_true",
        help="profile a case that regressed once more, here and in the other environment, and show "
        "the operations whose share of the time grew",
    )
    group.addoption(
        "--keep-operations",
        action="store_true",
        help="profile each measured case once more, and keep its operations for a baseline's "
        "--profile-on-regression",
    )
    group.addoption(
        "--save-graph",
        metavar="DIR",
        help="also write each case's graph, for Netron or TensorBoard",
    )


def _add_results(group: Section) -> None:
    """Where results are kept."""
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
        metavar="NAME",
        help="write the results to baselines/NAME.json (a value with a slash is a path)",
    )
    group.addoption(
        "--keep-disturbed",
        action="store_true",
        help="also write cases to the baseline that other programs disturbed",
    )


def _add_comparisons(group: Section) -> None:
    """What a case is compared with, and how much slower it may be."""
    group.addoption(
        "--baseline",
        metavar="NAME",
        help="compare with baselines/NAME.json (a value with a slash is a path)",
    )
    group.addoption(
        "--gate",
        type=gate_limits,
        metavar="PERCENT",
        help="fail a case that is surely slower than its baseline, and by more than this: 2%%; "
        "instructions:1%% judges instructions and times nothing, 2%%,instructions:1%% both",
    )
    group.addoption(
        "--gate-cap",
        type=whole_number(1),
        default=16,
        metavar="N",
        help="fresh processes at most in which a suspected case is measured again (16)",
    )
    group.addoption(
        "--gate-time",
        type=duration,
        metavar="DURATION",
        help="fresh processes take so long at most, over all cases: 5min; what is open then is "
        "inconclusive",
    )
    group.addoption(
        "--gate-policy",
        metavar="PATH",
        help="thresholds by case and metric (gate.yml in the project's folder, where there is one)",
    )
    group.addoption(
        "--gate-inconclusive",
        choices=("pass", "fail"),
        help="what becomes of a case that the gate could not decide (pass, unless gate.yml has "
        "inconclusive: fail)",
    )
    group.addoption(
        "--processes",
        type=whole_number(1),
        metavar="N",
        help="processes that measure each case: 1, and 9 for a baseline that is saved",
    )


def _add_against(group: Section) -> None:
    """What else a case is measured with in turns, in the same run."""
    group.addoption(
        "--against",
        metavar="PYTHON|git:REV",
        help="measure each case in turns here and with this interpreter, or in a worktree of this "
        "revision (git:main, git:merge-base:main), and compare the two",
    )
    group.addoption(
        "--against-setup",
        metavar="COMMAND",
        help="make an environment in the worktree of --against=git:REV with this command",
    )
    group.addoption(
        "--against-python",
        metavar="PATH",
        help="interpreter for --against=git:REV: after --against-setup .venv/bin/python there, "
        "else this one",
    )


def _add_reports(group: Section) -> None:
    """What is kept and written beside the records."""
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
