"""Finds differences between two records of a case that prevent a comparison."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence

from ipubench.fixtures.case.errors import shortened
from ipubench.plugins.record.record import ONE_BATCH, ONE_BATCH_ROUNDS, is_imported, items_per_batch
from ipubench.plugins.record.structs import Benchmark, Facts, Record

#: Seconds: pytest-benchmark's loop takes up to 40 ns longer for each call than ours.
SHORTEST_CALL = 1e-6


def same_latency(now: Record, before: Record) -> bool:
    """Return whether two records have latencies of the same kind of calls."""
    ours, theirs = now.latency.source, before.latency.source
    return ours == theirs or {ours, theirs} <= {ONE_BATCH, ONE_BATCH_ROUNDS}


def other_items(now: Record, before: Record) -> List[str]:
    """Return differences in the items of a batch: their number and unit.

    The items of a round may differ: their number depends on the machine, but the rate does not.
    """
    found = []
    units = [one.throughput.unit for one in (before, now)]
    if units[0] != units[1]:
        found.append(f"unit {units[0]} -> {units[1]}")
    items = [items_per_batch(one) for one in (before, now)]
    if not math.isclose(*items):
        found.append(f"{items[0]:,.12g} items a batch, now {items[1]:,.12g}")
    return found


def changed_extra_info(
    now: Benchmark, before: Benchmark, keys: Optional[Sequence[str]] = None
) -> List[str]:
    """Return the differences in a test's ``extra_info`` between two benchmarks.

    ``keys``: only these; by default all that the test has added.
    """
    ours, theirs = now.extra_info.others, before.extra_info.others
    return [
        f"extra_info {key} {shortened(theirs.get(key))} -> {shortened(ours.get(key))}"
        for key in (sorted({*ours, *theirs}) if keys is None else keys)
        if ours.get(key) != theirs.get(key)
    ]


def changed_settings(now: Benchmark, before: Benchmark) -> List[str]:
    """Return the differences in settings of pytest-benchmark that affect a result.

    Our meter uses its own clock and warm-up, so settings of these do not count.
    """
    names = ["disable_gc"]
    if now.record.effective.get("measured_by"):
        names += ["timer", "warmup"]
    ours, theirs = now.options, before.options
    return [
        f"{name} {theirs[name]} -> {ours[name]}"
        for name in names
        if name in ours and name in theirs and ours[name] != theirs[name]
    ]


def differences(now: Record, before: Record) -> List[str]:
    """Return the reasons why two records cannot be compared; empty if they can."""
    found = other_items(now, before)
    if is_imported(now) != is_imported(before):
        return found + _other_than_imported(now, before)
    if now.device.fingerprint != before.device.fingerprint:
        found.append(f"another machine ({before.device.fingerprint}, now {now.device.fingerprint})")
    if now.config_hash != before.config_hash:
        options, old_options = (unnamed_options(one) for one in (now, before))
        changed = _changed(options, old_options)
        # A renamed case has another name in its configuration, so its hash differs too.
        same_name = now.effective_options.get("name") == before.effective_options.get("name")
        if changed or same_name:
            found.append(f"another configuration ({', '.join(changed) or 'hash differs'})")
    found += _changed(now.conditions, before.conditions)
    found += _changed(now.effective, before.effective)
    ours, theirs = at_once(now), at_once(before)
    if ours != theirs:
        found.append(f"requests sent at once ({theirs} of those configured, now {ours})")
    data, other_data = _source(now), _source(before)
    if data != other_data:
        found.append(f"other data ({other_data}, now {data})")
    if bool(now.canary.seconds) != bool(before.canary.seconds):
        found.append("canaries on one side only")
    return found


def _other_than_imported(now: Record, before: Record) -> List[str]:
    """Return the differences between a record of ours and one of a file of pytest-benchmark.

    The name of the CPU is all that both have.
    """
    found = []
    names = before.device.name, now.device.name
    if names[0] != names[1]:
        found.append(f"another machine ({', now '.join(names)})")
    ours = not (now.effective.get("measured_by") and before.effective.get("measured_by"))
    if ours and max(now.throughput.median, before.throughput.median) > 1 / SHORTEST_CALL:
        found.append("calls shorter than 1 µs: pytest-benchmark's loop adds too much to them")
    return found


def unnamed_options(record: Record) -> Facts:
    """Return the options in a configuration's hash, without the case's name."""
    return {key: value for key, value in record.effective_options.items() if key != "name"}


def _changed(now: Facts, before: Facts) -> List[str]:
    return [
        f"{key} {before.get(key)} -> {now.get(key)}"
        for key in sorted({*now, *before})
        if now.get(key) != before.get(key)
    ]


def at_once(record: Record) -> float:
    """Return the share of a round's requests that wait at the same time, or 1."""
    shortened = record.rounds.shortened
    asynchronous = record.effective.get("request_type") == "async"
    return 1.0 if shortened is None or not asynchronous else shortened


def _source(record: Record) -> str:
    """Return a description of the input, without the unreadable files."""
    return ", ".join(f"{k} {v}" for k, v in sorted(record.data.items()) if k != "corrupt")
