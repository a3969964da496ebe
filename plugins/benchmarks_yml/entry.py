"""An entry of a benchmarks.yml: its keys, the meaning of its name, and its variants."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.masking import mask_value
from ipubench.fixtures.case.yaml_reader import SCALARS, Fields, Value, YamlError
from ipubench.plugins.benchmarks_yml.expression import Expression
from ipubench.plugins.benchmarks_yml.metrics import (
    LATENCY,
    THROUGHPUT,
    Metric,
    seconds_of,
    unit_counted,
)

SHARED = "options"  # part of the name of a block that entries merge
CONVERGENCE = "_conv"
# Words in a name that mean made-up data.
MADE_UP = {"generated": re.compile(r"gen(erated)?\d*"), "synthetic": re.compile(r"synth(etic)?\d*")}
#: Keys that have no effect here: the user prepares the environment.
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
#: The columns that every row of specs.csv has; entries cannot use these names.
ROW = ("case", "benchmark", "variant", "run_seconds", "git_revision")
MOST_VARIANTS = 10_000  # of one entry
FORMS = 'a mapping NAME: "v1,v2" or a list of rows, the first one with the names'
#: Parameter -> value, as text.
Variant = Dict[str, str]


@dataclass(frozen=True)
class Entry:
    """One benchmark of a file."""

    name: str
    line: int
    file: str  # its name in messages
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
    data: str = "real"  # or generated, synthetic: these need no data set
    notebook: bool = False
    unused: Tuple[str, ...] = ()  # its keys without effect

    @property
    def converges(self) -> bool:
        """Return whether it trains to convergence: it runs only if the user names it."""
        return CONVERGENCE in self.name

    @property
    def ipus(self) -> int:
        """N of podN in its name, or 1."""
        found = re.search(r"pod(\d+)", self.name)
        return max(1, int(found.group(1)[:4])) if found else 1

    @property
    def unit(self) -> str:
        """What a throughput counts, from the title of its column."""
        return unit_counted(self._titles_of(THROUGHPUT))

    @property
    def latency_seconds(self) -> float:
        """The seconds of one unit of a latency, from the title of its column."""
        return seconds_of(self._titles_of(LATENCY))

    @property
    def figures(self) -> List[str]:
        """The names of its metrics and derived values."""
        return [*(metric.name for metric in self.metrics), *self.derived]

    def _titles_of(self, metric: str) -> List[str]:
        return [title for title, name in self.output if name == metric]


class VariantReader:
    """Reads the parameters of an entry, which make its variants. Methods raise YamlError."""

    def __init__(self, fields: Fields, entry: str) -> None:
        """``entry``: the name of the entry in messages."""
        self._fields = fields
        self._entry = entry

    def variants(self, node: Value) -> List[Variant]:
        """Return parameter -> value of each variant; without parameters one empty variant.

        A mapping gives the product of its values; the first parameter changes fastest.
        """
        if node.data is None:
            return [{}]
        if isinstance(node.data, dict):
            return self._product(node)
        if isinstance(node.data, list):
            return self._rows(node)
        raise self._error(node.line, f"parameters are {FORMS}")

    def _product(self, node: Value) -> List[Variant]:
        values: Dict[str, List[str]] = {}
        for name, value in node.data.items():
            if isinstance(value.data, list):
                raise self._error(
                    value.line,
                    f'{shortened(name)}: write the values as "v1,v2"; parameters are {FORMS}',
                )
            values[name] = [text.strip() for text in self._text(value, name).split(",")]
            if "" in values[name]:
                raise self._error(value.line, f"{shortened(name)} has an empty value")
        if math.prod(map(len, values.values())) > MOST_VARIANTS:
            raise self._error(
                node.line, f"these parameters have more than {MOST_VARIANTS:,} variants"
            )
        names = list(reversed(list(values)))
        found = [dict(zip(names, row)) for row in itertools.product(*(values[n] for n in names))]
        return [{name: row[name] for name in values} for row in found]

    def _rows(self, node: Value) -> List[Variant]:
        rows: List[Tuple[int, List[str]]] = []
        for row in node.data:
            if not isinstance(row.data, list):
                raise self._error(row.line, f"this row is not a list; parameters are {FORMS}")
            rows.append((row.line, [self._text(value, "a row") for value in row.data]))
        if len(rows) < 2 or not rows[0][1]:
            raise self._error(node.line, f"there are no rows of values; parameters are {FORMS}")
        names = rows[0][1]
        if len(set(names)) < len(names):
            raise self._error(rows[0][0], "a name stands twice in the first row")
        for line, values in rows[1:]:
            if len(values) != len(names):
                raise self._error(
                    line, f"{len(values)} values for {len(names)} parameters ({', '.join(names)})"
                )
        return [dict(zip(names, values)) for _, values in rows[1:]]

    def _text(self, value: Value, name: str) -> str:
        data: Any = value.data
        if not isinstance(data, SCALARS):
            raise self._error(
                value.line, f"{shortened(name)} has a value that is neither text nor a number"
            )
        return str(data)

    def _error(self, line: int, problem: str) -> YamlError:
        return self._fields.error(line, f"{shortened(self._entry)}: {problem}")


def variant_name(entry: str, variant: Mapping[str, str]) -> str:
    """Return the original name of a variant: its parameters in alphabetical order.

    Files and results have this name, so secrets are masked.
    """
    return entry + "".join(f"_{n}_{mask_value(n, variant[n])}" for n in sorted(variant))
