"""Finds stored results of cases that were renamed since: the key ``renamed`` of gate.yml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterable, List, Mapping

from msgspec.structs import replace

from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.gate.policy_file import FILE_NAME, Policy, PolicyError
from ipubench.plugins.record.differences import unnamed_options
from ipubench.plugins.record.record import with_record
from ipubench.plugins.record.structs import Benchmark

#: What may follow the name of a renamed file, class or function.
ENDS = ("::", "[")


def name_now(nodeid: str, names: Mapping[str, str]) -> str:
    """Return the node id that a stored case has now.

    ``names``: old -> new, of cases, functions, classes or files.
    """
    for old, new in names.items():
        if nodeid == old or nodeid.startswith(tuple(old + end for end in ENDS)):
            return new + nodeid[len(old) :]
    return nodeid


def renamed(benchmarks: Iterable[Benchmark], names: Mapping[str, str]) -> List[Benchmark]:
    """Return stored benchmarks under the node ids that their cases have now.

    The hash of a configuration covers the case's name. A configuration that differs from one of the
    new case in its name alone gets that one's hash.
    """
    stored = list(benchmarks)
    if not names:
        return stored
    hashes = {(one.fullname, _options(one)): one.record.config_hash for one in stored}
    found = []
    for one in stored:
        fullname, record = name_now(one.fullname, names), one.record
        if fullname != one.fullname:
            record = replace(
                record,
                test=record.test and name_now(record.test, names),
                config_hash=hashes.get((fullname, _options(one)), record.config_hash),
            )
            one = with_record(replace(one, fullname=fullname), record)
        found.append(one)
    return found


def _options(benchmark: Benchmark) -> str:
    return json.dumps(unnamed_options(benchmark.record), sort_keys=True)


def names_in(root: Path) -> Mapping[str, str]:
    """Return what gate.yml of a project's folder has renamed. Raises BaselineError."""
    path = root / FILE_NAME
    try:
        return Policy.load(path).renamed if path.is_file() else {}
    except PolicyError as error:
        raise BaselineError(str(error)) from None
