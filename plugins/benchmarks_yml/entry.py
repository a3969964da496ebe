"""An entry of a benchmarks.yml: its keys, and what they and its name mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from ipubench.plugins.benchmarks_yml import units
from ipubench.plugins.benchmarks_yml.expression import Expression
from ipubench.plugins.benchmarks_yml.metrics import LATENCY, THROUGHPUT, Metric
from ipubench.plugins.benchmarks_yml.variants import Variant

SHARED = "options"  # in the name of a block that others merge
CONVERGENCE = "_conv"
# A word of a name that says the data are made up.
MADE_UP = {"generated": re.compile(r"gen(erated)?\d*"), "synthetic": re.compile(r"synth(etic)?\d*")}
#: Keys that nothing here does anything about: the user prepares the environment.
PREPARATION = (
    "requirements_path",
    "required_apt_packages_path",
    "required_apt_packages",
    "pre_run_commands",
    "repository",
    "config",
)
KEYS = (
    "cmd",
    "notebook",
    "parameters",
    "data",
    "derived",
    "output",
    "env",
    "timeout",
    "location",
    "reference_directory",
    "requirements_file",
    "allow_wandb",
    "generated",
    "synthetic",
    "description",
    *PREPARATION,
)
#: The columns of specs.csv that every row has, which no entry can name so.
ROW = ("case", "benchmark", "variant", "run_seconds", "git_revision")


@dataclass(frozen=True)
class Entry:
    """One benchmark of a file."""

    name: str
    line: int
    file: str  # as messages call it
    folder: Path  # where its command runs
    command: str  # the template
    variants: Tuple[Variant, ...]
    metrics: Tuple[Metric, ...] = ()
    derived: Dict[str, Expression] = field(default_factory=dict)
    output: Tuple[Tuple[str, str], ...] = ()
    environment: Dict[str, str] = field(default_factory=dict)
    timeout: Optional[float] = None
    requirements: Optional[Path] = None
    allow_wandb: bool = False
    data: str = "real"  # or generated, synthetic: then no data set is asked for
    notebook: bool = False
    unused: Tuple[str, ...] = ()  # its keys that nothing is done about

    @property
    def converges(self) -> bool:
        """Whether it is a training to convergence, which runs only when asked for."""
        return CONVERGENCE in self.name

    @property
    def ipus(self) -> int:
        """N of podN in its name, or 1."""
        found = re.search(r"pod(\d+)", self.name)
        return max(1, int(found.group(1)[:4])) if found else 1

    @property
    def unit(self) -> str:
        """What a throughput counts: of the column's title, else of the regular expression."""
        return units.counted(*self._said_of(THROUGHPUT))

    @property
    def latency_seconds(self) -> float:
        """The seconds of one unit of a latency: milliseconds unless it says another one."""
        return units.seconds_of(*self._said_of(LATENCY))

    @property
    def figures(self) -> List[str]:
        """The names of its metrics and derived values."""
        return [*(metric.name for metric in self.metrics), *self.derived]

    def _said_of(self, metric: str) -> Tuple[List[str], List[str]]:
        """Return the titles and the regular expressions of a metric."""
        return (
            [title for title, name in self.output if name == metric],
            [one.regexp for one in self.metrics if one.name == metric],
        )
