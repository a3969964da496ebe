"""A benchmarks.yml as a pytest module, whose cases are its entries under the options given."""

from __future__ import annotations

import dataclasses
import itertools
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.options import CaseConfig, option, resolve_key
from ipubench.fixtures.devices import IPU_KINDS
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.entry import Entry, Variant, variant_name
from ipubench.plugins.benchmarks_yml.figures import word_read
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
from ipubench.plugins.selection.selected import case_of

#: What --set can change beside the parameters of an entry.
SETTABLE = ("skip_by", "allow_wandb", "timeout", "compile_only")
# A command decides these; the options that ask for them are refused.
ITS_OWN = {
    "steps": "the command decides how often it reports",
    "batches_per_step": "the command decides what it runs at a time",
}


@dataclass(frozen=True)
class SpecConfig(CaseConfig):
    """A command of a benchmarks.yml, and what its output means."""

    mode: str = option("command", "what a command does is its own")
    precision: str = option("unknown", "the command's own")
    entry: str = option("", "name in the file")
    command: str = option("", "cmd with the parameters filled in; variables are replaced later")
    parameters: Tuple[Tuple[str, str], ...] = option(
        (), "of this variant; --set=NAME=VALUE replaces one"
    )
    environment: Tuple[Tuple[str, str], ...] = option((), "variables of its own")
    metrics: Tuple[Tuple[str, str, int, str], ...] = option(
        (), "name, regular expression or what it is derived from, skip, reduction"
    )
    latency_seconds: float = option(
        MILLISECOND, "seconds of one unit of the latency that the command prints", later=True
    )
    ipus_in_name: int = option(1, "N of podN")
    skip_by: str = option(
        ORDER,
        f"what skip drops: the earliest values ({ORDER}), or the lowest ones, of a latency the "
        f"highest ({VALUE}, as the original runner)",
        choices=SKIPS,
    )
    allow_wandb: bool = option(False, "keep the command's options for Weights & Biases")
    timeout: float = option(0.0, "seconds after which the command is ended; 0: never", minimum=0)
    compile_only: bool = option(False, "append --compile-only, and read no metric")

    @property
    def ipus(self) -> int:
        """IPUs that the name speaks of, on an IPU system."""
        return 0 if self.system == "host" else self.ipus_in_name


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    assignments: Mapping[str, Sequence[str]]
    device: str
    data: Optional[str] = None
    precision: Optional[str] = None


def cases_of(entry: Entry, wanted: Wanted) -> Iterator[Case]:
    """Yield the cases of an entry, in the order of its variants."""
    for variant in entry.variants:
        parameters = {name.replace("-", "_"): name for name in variant}
        own = [key for key in wanted.assignments if key in parameters]
        options = {
            key: name
            for key in wanted.assignments
            if key not in own
            for name in [resolve_key(SpecConfig, key)]
            if name in SETTABLE
        }
        lacks = frozenset(set(wanted.assignments) - {*own, *options})
        for texts in itertools.product(*(wanted.assignments[key] for key in own)):
            changed = {parameters[key]: text for key, text in zip(own, texts)}
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
    error = next((f"--{key.replace('_', '-')}: {ITS_OWN[key]}" for key in lacks & {*ITS_OWN}), "")
    metrics = [metric.name for metric in entry.metrics]
    for expression in entry.derived.values():
        unfit = word_read(expression, dict(config.parameters), metrics) if changed else ""
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
        excluded = f"--data={wanted.data}"
    elif wanted.precision is not None:
        excluded = f"--precision={wanted.precision}"
    identifier = identifier_of(config)
    return Case(
        config,
        f"{identifier}-invalid" if error else identifier,
        overrides=frozenset([*changed, *given]),
        lacks=lacks - {*ITS_OWN},
        excluded=excluded,
        error=error,
        base_id=identifier_of(_config(entry, variant, wanted.device)),
    )


def _config(entry: Entry, variant: Mapping[str, str], device: str) -> SpecConfig:
    return SpecConfig(
        name=variant_name(entry.name, variant),
        system="ipu" if device in IPU_KINDS else "host",
        data=entry.data,
        entry=entry.name,
        command=template.fill(entry.command, variant),
        parameters=tuple(variant.items()),
        environment=tuple(sorted(entry.environment.items())),
        metrics=tuple(
            [(m.name, m.regexp, m.skip, m.reduction) for m in entry.metrics]
            # What the case's rate and latency are made of is a part of the case.
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
    """Return the original's name of the variant, and what was set beside its parameters.

    It is the name of a file, too: only letters, digits, ``-``, ``_`` and ``.``.
    """
    return safe_name(config.name) + (f"-skipby{config.skip_by}" if config.skip_by != ORDER else "")


def unknown_option(key: str, configs: List[SpecConfig]) -> str:
    """Return the message for a --set key that none of the commands has."""
    names = sorted({name for config in configs for name, _ in config.parameters})
    names = list(filter(can_be_set, names))
    return (
        f"--set: {key!r} is no parameter of the selected commands; they have "
        f"{', '.join([*names, *SETTABLE])}"
    )


def bench_spec(config: SpecConfig, command_meter: Callable[[SpecConfig], None]) -> None:
    """Run the command of an entry and measure what it reports."""
    command_meter(config)


class SpecFile(pytest.Module):
    """The file as a module. Its function is a pytest.Function, so fixtures serve it."""

    entries: Dict[str, Entry]  # by name

    @classmethod
    def of(cls, parent: Any, path: Path, nodeid: str, entries: Dict[str, Entry]) -> SpecFile:
        """Return the node of a file; ``nodeid``: what the identifiers of its cases begin with."""
        found: SpecFile = cls.from_parent(parent, path=path, nodeid=nodeid)
        found.entries = entries
        return found

    def funcnamefilter(self, name: str) -> bool:
        """Collect the function in every project: its python_functions may name tests alone."""
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
    """Return the entry of the file that such a case runs."""
    file = item.getparent(SpecFile)
    assert file is not None
    return file.entries[config_of(item).entry]


def is_spec(item: pytest.Item) -> bool:
    """Tell whether an item is a case of a benchmarks.yml."""
    return item.getparent(SpecFile) is not None
