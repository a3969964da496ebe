"""What makes two records comparable: the same case on the same machine in the same way."""

from __future__ import annotations

from typing import Any, Dict, List


def differences(now: Dict[str, Any], before: Dict[str, Any]) -> List[str]:
    """Return why two records may not be compared, in words; empty where they may."""
    found = []
    if now["device"]["fingerprint"] != before["device"]["fingerprint"]:
        found.append(
            f"another machine ({before['device']['fingerprint']}, "
            f"now {now['device']['fingerprint']})"
        )
    if now["config_hash"] != before["config_hash"]:
        ours, theirs = now["effective_options"], before.get("effective_options", {})
        changed = [
            f"{key} {theirs.get(key)} -> {ours.get(key)}"
            for key in sorted({*ours, *theirs})
            if ours.get(key) != theirs.get(key)
        ]
        found.append(f"another configuration ({', '.join(changed) or 'hash differs'})")
    for group in ("conditions", "effective"):
        for key in sorted({*now[group], *before[group]}):
            if now[group].get(key) != before[group].get(key):
                found.append(f"{key} {before[group].get(key)} -> {now[group].get(key)}")
    ours, theirs = _source(now), _source(before)
    if ours != theirs:
        found.append(f"other data ({theirs}, now {ours})")
    if bool(now["canary"]["seconds"]) != bool(before["canary"]["seconds"]):
        found.append("canaries on one side only")
    if now["throughput"]["unit"] != before["throughput"]["unit"]:
        found.append(f"unit {before['throughput']['unit']} -> {now['throughput']['unit']}")
    return found


def _source(record: Dict[str, Any]) -> str:
    """Return what the input was, without the unreadable files that happened to be met."""
    return ", ".join(f"{k} {v}" for k, v in sorted(record["data"].items()) if k != "corrupt")
