"""Reads an entry's figures: ``data``, ``derived`` and ``output``."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence, Tuple

from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.options import nearest
from ipubench.fixtures.case.yaml_reader import Fields, Value
from ipubench.plugins.benchmarks_yml.entry import ROW, Variant
from ipubench.plugins.benchmarks_yml.expression import BRACED, Expression
from ipubench.plugins.benchmarks_yml.metrics import REDUCTIONS, Metric
from ipubench.plugins.record.text import finite_number


def metrics_of(fields: Fields, found: Mapping[str, Value]) -> List[Metric]:
    """Return the metrics of an entry with the keys ``found``. Raises YamlError."""
    if "data" not in found:
        return []
    data = fields.mapping(found["data"], "data")
    return [_metric(fields, name, value, found["data"].lines[name]) for name, value in data.items()]


def _metric(fields: Fields, name: str, value: Value, line: int) -> Metric:
    what = f"the metric {shortened(name)}"
    _refuse_reserved(fields, name, what, line)
    found = fields.keys(value, what, ("regexp", "skip", "reduction_type"))
    if "regexp" not in found:
        raise fields.error(value.line, f"{what} needs a regexp")
    regexp, line = fields.text(found["regexp"], f"{what}: regexp"), found["regexp"].line
    try:
        groups = re.compile(regexp).groups
    # For a repeat count that is too large for a C int, and for too many brackets.
    except (re.error, OverflowError, RecursionError) as error:
        raise fields.error(line, f"{what}: regexp: {error}") from None
    if groups > 1:
        raise fields.error(
            line, f"{what}: regexp has {groups} groups; write (?:...) for all but the number's"
        )
    skip = found["skip"].data if "skip" in found else 0
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise fields.error(found["skip"].line, f"{what}: skip is a whole number from 0 up")
    return Metric(name, regexp, skip, _reduction(fields, found, what))


def _refuse_reserved(fields: Fields, name: str, what: str, line: int) -> None:
    if name in ROW:
        raise fields.error(line, f"{what}: every row of specs.csv has a column of this name")


def _reduction(fields: Fields, found: Mapping[str, Value], what: str) -> str:
    if "reduction_type" not in found:
        return "mean"
    word = fields.scalar(found["reduction_type"], f"{what}: reduction_type")
    if word not in REDUCTIONS:
        raise fields.error(
            found["reduction_type"].line,
            f"{what}: reduction_type {shortened(word)} is not one of {', '.join(REDUCTIONS)}"
            f"{nearest(word, REDUCTIONS)}",
        )
    return word


def derived_of(
    fields: Fields, found: Mapping[str, Value], metrics: Sequence[str], every: Sequence[Variant]
) -> Dict[str, Expression]:
    """Return the expressions, each after those that it reads. Raises YamlError.

    ``metrics``: the names of the entry's metrics. ``every``: its variants.
    """
    if "derived" not in found:
        return {}
    parameters = list(every[0])
    given, lines = fields.mapping(found["derived"], "derived"), found["derived"].lines
    known = [*metrics, *parameters, *given]
    made: Dict[str, Expression] = {}
    for name, value in given.items():
        what = f"the derived value {shortened(name)}"
        _refuse_reserved(fields, name, what, lines[name])
        for kind, others in (("metric", metrics), ("parameter", parameters)):
            if name in others:
                raise fields.error(lines[name], f"{what}: a {kind} has this name")
        keys = fields.keys(value, what, ("expr", "reduction_type"))
        if "reduction_type" in keys:
            # In the original runner a name for the result, such as p99; it reduces nothing.
            fields.scalar(keys["reduction_type"], f"{what}: reduction_type")
        if "expr" not in keys:
            raise fields.error(value.line, f"{what} needs an expr")
        text, line = fields.scalar(keys["expr"], f"{what}: expr"), keys["expr"].line
        try:
            made[name] = Expression(text)
        except ValueError as error:
            raise fields.error(line, f"{what}: {error}") from None
        for unknown in sorted(made[name].names - set(known)):
            raise fields.error(
                line,
                f"{what}: {unknown} is not a metric, parameter or derived value"
                f"{nearest(unknown, known)}",
            )
        problem = next(filter(None, (text_problem(made[name], v, metrics) for v in every)), "")
        if problem:
            raise fields.error(line, f"{what}: {problem}")
    return _in_order(fields, made, lines)


def text_problem(expression: Expression, variant: Variant, metrics: Sequence[str]) -> str:
    """Return a sentence about a parameter that an expression reads but is not a number, or ''."""
    for name in sorted(expression.names - set(metrics)):
        if name in variant and finite_number(variant[name]) is None:
            return f"{name} is {shortened(variant[name])}, which is not a number"
    return ""


def _in_order(
    fields: Fields, made: Mapping[str, Expression], lines: Mapping[str, int]
) -> Dict[str, Expression]:
    ordered: Dict[str, Expression] = {}
    while len(ordered) < len(made):
        ready = [
            name
            for name, one in made.items()
            if name not in ordered and not (one.names & set(made)) - set(ordered)
        ]
        if not ready:
            circle = next(name for name in made if name not in ordered)
            raise fields.error(
                lines[circle], f"the derived value {shortened(circle)} depends on itself"
            )
        ordered.update({name: made[name] for name in ready})
    return ordered


def output_of(
    fields: Fields, found: Mapping[str, Value], figures: Sequence[str]
) -> List[Tuple[int, str, str]]:
    """Return (line, title, name) of each column; a name may be a number. Raises YamlError.

    ``figures`` are the metrics and derived values of the entry. This does not check the names: a
    shared block may use a name that only some of its entries have.
    """
    if "output" not in found:
        return []
    pairs = found["output"].data if isinstance(found["output"].data, list) else None
    if pairs is None or not all(isinstance(p.data, list) and len(p.data) == 2 for p in pairs):
        raise fields.error(
            found["output"].line, "output is a list of pairs [title, metric or parameter]"
        )
    columns: List[Tuple[int, str, str]] = []
    for pair in pairs:
        title, name = (fields.scalar(value, "a pair of output") for value in pair.data)
        braced = BRACED.fullmatch(name)
        name = braced.group(1) if braced else name
        problem = _problem_of(title, name, [known for _, known, _ in columns], figures)
        if problem:
            raise fields.error(pair.line, f"output: {problem}; write another title")
        columns.append((pair.line, title, name))
    return columns


def _problem_of(title: str, name: str, titles: Sequence[str], figures: Sequence[str]) -> str:
    """Return why a row of specs.csv cannot have a column, or ''."""
    if title in ROW:
        return f"every row of specs.csv has a column {shortened(title)}"
    if title in titles:
        return f"there are two columns {shortened(title)}"
    if title in figures and title != name:
        return f"the title {shortened(title)} is the name of another value, which has a column too"
    return ""


def unknown_column(
    fields: Fields, columns: Sequence[Tuple[int, str, str]], known: Sequence[str]
) -> None:
    """Raise YamlError for a column whose name no entry of the file has."""
    for line, _, name in columns:
        if name not in known and finite_number(name) is None:
            raise fields.error(
                line,
                f"output: no entry has a metric, parameter or derived value {shortened(name)}"
                f"{nearest(name, known)}",
            )
