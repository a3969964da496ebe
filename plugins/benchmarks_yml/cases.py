"""Turns a benchmarks.yml into a pytest module: each entry gives cases."""

from __future__ import annotations

import dataclasses
import itertools
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures import devices
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.options import CaseConfig, option, resolve_key
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.entry import Entry, Variant, variant_name
from ipubench.plugins.benchmarks_yml.figures import text_problem
from ipubench.plugins.benchmarks_yml.metrics import (
    DERIVED,
    LATENCY,
    MILLISECOND,
    ORDER,
    SKIPS,
    THROUGHPUT,
    VALUE,
)
from ipubench.plugins.command_line.set_option import can_be_set, convert
from ipubench.plugins.record.text import safe_name
from ipubench.plugins.selection.selected import NOT_OFFERED, case_of

#: What --set can change, in addition to the parameters of an entry.
SETTABLE = ("skip_by", "allow_wandb", "timeout", "compile_only")
# Options that are refused, because the command decides.
DECIDED_BY_COMMAND = {
    "steps": "the command decides how often it reports",
    "batches_per_step": "the command decides how much it runs at a time",
}


@dataclass(frozen=True)
class SpecConfig(CaseConfig):
    """A command of a benchmarks.yml, and how to read its output."""

    mode: str = option("command", "the command decides what it does")
    precision: str = option("unknown", "the command decides")
    entry: str = option("", "name in the file")
    command: str = option("", "cmd with the parameters filled in; variables are replaced later")
    parameters: Tuple[Tuple[str, str], ...] = option(
        (), "of this variant; --set=NAME=VALUE replaces one"
    )
    environment: Tuple[Tuple[str, str], ...] = option((), "variables from env")
    metrics: Tuple[Tuple[str, str, int, str], ...] = option(
        (), "name, regular expression or expression, skip, reduction"
    )
    latency_seconds: float = option(
        MILLISECOND, "seconds of one unit of the latency that the command prints", later=True
    )
    ipus_in_name: int = option(1, "N of podN")
    skip_by: str = option(
        ORDER,
        f"what skip drops: the earliest values ({ORDER}), or the lowest ones, for a latency the "
        f"highest ({VALUE}, as the original runner)",
        choices=SKIPS,
    )
    allow_wandb: bool = option(False, "keep the command's options for Weights & Biases")
    timeout: float = option(
        0.0, "seconds after which the command is ended; 0: never", minimum=0, same_case=True
    )
    compile_only: bool = option(False, "append --compile-only, and read no metric", same_case=True)

    @property
    def ipus(self) -> int:
        """The number of IPUs in the name; 0 on a host."""
        return 0 if self.system == "host" else self.ipus_in_name


@dataclass(frozen=True)
class Wanted:
    """The command line's options for cases."""

    assignments: Mapping[str, Sequence[str]]
    device: str
    data: Optional[str] = None
    precision: Optional[str] = None


def cases_of(entry: Entry, wanted: Wanted) -> Iterator[Case]:
    """Yield the cases of an entry, in the order of its variants."""
    for variant in entry.variants:
        parameters = {name.replace("-", "_"): name for name in variant}
        set_parameters = [key for key in wanted.assignments if key in parameters]
        options = {
            key: name
            for key in wanted.assignments
            if key not in set_parameters
            for name in [resolve_key(SpecConfig, key)]
            if name in SETTABLE
        }
        lacks = frozenset(set(wanted.assignments) - {*set_parameters, *options})
        for texts in itertools.product(*(wanted.assignments[key] for key in set_parameters)):
            changed = {parameters[key]: text for key, text in zip(set_parameters, texts)}
            for values in itertools.product(*(wanted.assignments[key] for key in options)):
                given = dict(zip(options.values(), values))
                yield _case(entry, variant, changed, given, lacks, wanted)


def _case(
    entry: Entry,
    variant: Variant,
    changed: Mapping[str, str],
    given: Mapping[str, str],
    lacks: frozenset[str],
    wanted: Wanted,
) -> Case:
    config = _config(entry, {**variant, **changed}, wanted.device)
    refused = lacks & {*DECIDED_BY_COMMAND}
    error = next((f"--{key.replace('_', '-')}: {DECIDED_BY_COMMAND[key]}" for key in refused), "")
    metrics = [metric.name for metric in entry.metrics]
    for expression in entry.derived.values():
        unfit = text_problem(expression, dict(config.parameters), metrics) if changed else ""
        if unfit:
            error = error or f"--set: {entry.name}: {expression.text!r}: {unfit}"
    for name, text in given.items():
        try:
            value = convert(SpecConfig, name, text)
        except ValueError as problem:
            error = error or f"--set={name}={text}: {problem}"
            continue
        if name == "timeout" and config.timeout:
            value = min(value, config.timeout) if value else config.timeout
        changes = {name: value}
        config = dataclasses.replace(config, **changes)
    excluded = ""
    if wanted.data not in (None, config.data):
        excluded = f"--data={wanted.data}{NOT_OFFERED}"
    identifier = identifier_of(config)
    return Case(
        config,
        f"{identifier}-invalid" if error else identifier,
        overrides=frozenset([*changed, *given]),
        lacks=(lacks - refused) | ({"precision"} if wanted.precision is not None else set()),
        excluded=excluded,
        error=error,
        base_id=identifier_of(_config(entry, variant, wanted.device)),
    )


def _config(entry: Entry, variant: Mapping[str, str], device: str) -> SpecConfig:
    return SpecConfig(
        name=variant_name(entry.name, variant),
        system="ipu" if devices.of(device).poplar else "host",
        data=entry.data,
        entry=entry.name,
        command=template.fill(entry.command, variant),
        parameters=tuple(variant.items()),
        environment=tuple(sorted(entry.environment.items())),
        metrics=tuple(
            [(m.name, m.regexp, m.skip, m.reduction) for m in entry.metrics]
            # The expressions of rate and latency are a part of the case.
            + [
                (name, entry.derived[name].text, 0, DERIVED)
                for name in (THROUGHPUT, LATENCY)
                if name in entry.derived
            ]
        ),
        latency_seconds=entry.latency_seconds,
        ipus_in_name=entry.ipus,
        allow_wandb=entry.allow_wandb,
        timeout=entry.timeout or 0.0,
    )


def identifier_of(config: SpecConfig) -> str:
    """Return the original name of the variant, and ``skip_by`` if it is set.

    It is also a file name: only letters, digits, ``-``, ``_`` and ``.``.
    """
    return safe_name(config.name) + (f"-skipby{config.skip_by}" if config.skip_by != ORDER else "")


def unknown_option(key: str, configs: List[SpecConfig]) -> str:
    """Return the message for a --set key that none of the commands has."""
    names = sorted({name for config in configs for name, _ in config.parameters})
    names = list(filter(can_be_set, names))
    return (
        f"--set: {key!r} is not a parameter of the selected commands; they have "
        f"{', '.join([*names, *SETTABLE])}"
    )


def bench_spec(config: SpecConfig, command_meter: Callable[[SpecConfig], None]) -> None:
    """Run the command of an entry and record its figures."""
    command_meter(config)


class SpecFile(pytest.Module):
    """The file as a pytest module with one function, so that it can use fixtures."""

    entries: Dict[str, Entry]  # by name

    @classmethod
    def of(cls, parent: Any, path: Path, nodeid: str, entries: Dict[str, Entry]) -> SpecFile:
        """Return the node of a file; ``nodeid``: the prefix of its cases' node ids."""
        found: SpecFile = cls.from_parent(parent, path=path, nodeid=nodeid)
        found.entries = entries
        return found

    def funcnamefilter(self, name: str) -> bool:
        """Collect the function, whatever the project's python_functions is."""
        return name == bench_spec.__name__

    def _getobj(self) -> types.ModuleType:
        module = types.ModuleType(self.path.name)
        module.bench_spec = bench_spec  # type: ignore[attr-defined]
        return module


def config_of(item: pytest.Item) -> SpecConfig:
    """Return the configuration of a case of :class:`SpecFile`."""
    case = case_of(item)
    assert case is not None and isinstance(case.config, SpecConfig)
    return case.config


def entry_of(item: pytest.Item) -> Entry:
    """Return the entry of such a case."""
    file = item.getparent(SpecFile)
    assert file is not None
    return file.entries[config_of(item).entry]


def is_spec(item: pytest.Item) -> bool:
    """Return whether an item is a case of a benchmarks.yml."""
    return item.getparent(SpecFile) is not None
