"""The parameters of an entry, and the variants that they make of it."""

from __future__ import annotations

import itertools
import math
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ipubench.plugins.benchmarks_yml.errors import short
from ipubench.plugins.benchmarks_yml.yaml_reader import Value

MOST = 10_000  # variants of one entry
SCALARS = (str, int, float, bool)
FORMS = 'a mapping NAME: "v1,v2" or a list of rows, the first one with the names'
Variant = Dict[str, str]


class ParameterError(ValueError):
    """Parameters of no known form; ``line`` is where."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def variants(node: Value) -> List[Variant]:
    """Return parameter -> value of each variant; one without parameters where there are none.

    A mapping is the product of its values, of which the first name's change fastest. Raises
    ParameterError.
    """
    if node.data is None:
        return [{}]
    if isinstance(node.data, dict):
        found = _product(node)
    elif isinstance(node.data, list):
        found = _rows(node)
    else:
        raise ParameterError(node.line, f"parameters are {FORMS}")
    _refuse_alike(node.line, list(found[0]))
    return found


def _refuse_alike(line: int, names: Sequence[str]) -> None:
    """Refuse names that --set, where ``-`` and ``_`` are the same, could not tell apart."""
    known: Dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.replace("-", "_"), name)
        if other != name:
            raise ParameterError(line, f"--set cannot tell {short(other)} from {short(name)}")


def variant_name(entry: str, variant: Mapping[str, str]) -> str:
    """Return the original's name of a variant: its parameters in alphabetical order."""
    return entry + "".join(f"_{name}_{variant[name]}" for name in sorted(variant))


def _product(node: Value) -> List[Variant]:
    values: Dict[str, List[str]] = {}
    for name, value in node.data.items():
        if isinstance(value.data, list):
            raise ParameterError(
                value.line, f'{short(name)}: write the values as "v1,v2"; parameters are {FORMS}'
            )
        values[name] = [text.strip() for text in _text(value, name).split(",")]
        if "" in values[name]:
            raise ParameterError(value.line, f"{short(name)} has an empty value")
    if math.prod(map(len, values.values())) > MOST:
        raise ParameterError(node.line, f"these parameters have more than {MOST:,} variants")
    names = list(reversed(list(values)))
    found = [dict(zip(names, row)) for row in itertools.product(*(values[n] for n in names))]
    return [{name: row[name] for name in values} for row in found]


def _rows(node: Value) -> List[Variant]:
    rows: List[Tuple[int, List[str]]] = []
    for row in node.data:
        if not isinstance(row.data, list):
            raise ParameterError(row.line, f"this row is no list; parameters are {FORMS}")
        rows.append((row.line, [_text(value, "a row") for value in row.data]))
    if len(rows) < 2 or not rows[0][1]:
        raise ParameterError(node.line, f"there are no rows of values; parameters are {FORMS}")
    names = rows[0][1]
    if len(set(names)) < len(names):
        raise ParameterError(rows[0][0], "a name stands twice in the first row")
    for line, values in rows[1:]:
        if len(values) != len(names):
            raise ParameterError(
                line, f"{len(values)} values for {len(names)} parameters ({', '.join(names)})"
            )
    return [dict(zip(names, values)) for _, values in rows[1:]]


def _text(value: Value, name: str) -> str:
    data: Any = value.data
    if not isinstance(data, SCALARS):
        raise ParameterError(value.line, f"{short(name)} holds a value that is no text or number")
    return str(data)
