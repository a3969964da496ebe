"""The environment of results, as a page or a comment shows it."""

from __future__ import annotations

from typing import Dict, List, Tuple

from ipubench.plugins.record.record import facts_in
from ipubench.plugins.record.structs import Facts
from ipubench.plugins.results.rows import Report


def environment(report: Report) -> Dict[str, Dict[str, str]]:
    """Return the environment as group -> key -> value; all values if cases differ."""
    groups: Dict[str, Dict[str, List[str]]] = {}
    for benchmark in report.benchmarks:
        record = benchmark.record
        device = record.device
        parts: Dict[str, Facts] = {
            "versions": record.versions,
            "device": {
                "kind": device.kind,
                "name": device.name,
                "fingerprint": device.fingerprint,
                **device.details,
            },
            "conditions": record.conditions,
            "code": {"git": record.git},
        }
        for group, values in parts.items():
            for key, value in _flat(values):
                seen = groups.setdefault(group, {}).setdefault(key, [])
                if value not in seen:
                    seen.append(value)
    machine = dict(report.around.machine_info)
    cpu = facts_in(machine.get("cpu"))
    if cpu:  # a list of a hundred flags
        machine["cpu"] = {k: v for k, v in cpu.items() if k != "flags"}
    for key, value in _flat(machine):
        groups.setdefault("machine", {})[key] = [value]
    return {
        group: {key: " | ".join(seen) for key, seen in values.items()}
        for group, values in groups.items()
    }


def _flat(values: Facts, prefix: str = "") -> List[Tuple[str, str]]:
    """Return nested values as (dotted key, text)."""
    found: List[Tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            found.append((f"{prefix}{key}", ", ".join(map(str, value))))
        elif value is not None:
            found.append((f"{prefix}{key}", str(value)))
    return found
