"""Stored baselines: write one, read one, and say in one message what is wrong with a file.

A baseline is a JSON document in pytest-benchmark's format (``pytest-benchmark compare`` reads it)
with one more top-level key, ``ipubench``, that holds the version of our part of the format.

Format history: 1 (first).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from plugins.files import write_json
from plugins.record import NAMESPACE, record_of

FORMAT = 1
# What a comparison needs of each case.
RECORD_KEYS = (
    "config_hash",
    "effective_options",
    "device",
    "conditions",
    "effective",
    "throughput",
    "canary",
    "data",
)


# Larger numbers are no measurement, and sums of them no longer finite.
LARGEST = 1e100


class BaselineError(Exception):
    """A baseline cannot be used; the message says which file, why and what to do."""


def baseline_path(name: str, root: Path) -> Path:
    """Return the file that ``--baseline=NAME`` means: a value with a slash is a path."""
    if "/" in name or "\\" in name:
        return Path(name).expanduser()
    return root / "baselines" / f"{name}.json"


def save(path: Path, document: Dict[str, Any]) -> None:
    """Write a baseline in one step. Raises BaselineError where the file cannot be written."""
    try:
        write_json(path, {**document, NAMESPACE: {"format": FORMAT}})
    except OSError as error:
        raise BaselineError(f"the baseline {path} cannot be written: {error}") from error


def load(path: Path) -> Dict[str, Dict[str, Any]]:
    """Return node id -> benchmark. Raises BaselineError for a file that cannot be trusted."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BaselineError(
            f"there is no baseline {path}; write one with --baseline-save={path.stem}"
            f"{_others(path)}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"the baseline {path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(
            f"the baseline {path} is not valid JSON ({error}); restore it, or write it again with "
            "--baseline-save"
        ) from error
    _check_format(path, document)
    benchmarks: List[Any] = document["benchmarks"]
    for index, benchmark in enumerate(benchmarks):
        _check_benchmark(path, index, benchmark)
    return {benchmark["fullname"]: benchmark for benchmark in benchmarks}


def _others(path: Path) -> str:
    names = sorted(other.stem for other in path.parent.glob("*.json"))
    return f"; there are: {', '.join(names)}" if names else ""


def _check_format(path: Path, document: Any) -> None:
    part = document.get(NAMESPACE) if isinstance(document, dict) else None
    version = part.get("format") if isinstance(part, dict) else None
    if type(version) is not int or version < 1 or not isinstance(document.get("benchmarks"), list):
        raise BaselineError(
            f"{path} is not a baseline of this suite; write one with --baseline-save"
        )
    if version > FORMAT:
        raise BaselineError(
            f"the baseline {path} has format {version}, this version reads up to {FORMAT}: use a "
            "newer ipubench, or write the baseline again"
        )


def _check_benchmark(path: Path, index: int, benchmark: Any) -> None:
    try:
        record = record_of(benchmark)
        missing = [key for key in RECORD_KEYS if key not in record]
        rounds = benchmark["stats"]["data"]
        canaries = record["canary"]["seconds"] if not missing else []
        sound = (
            not missing
            and isinstance(benchmark["fullname"], str)
            and isinstance(record["config_hash"], str)
            and isinstance(record["effective_options"], dict)
            and _positive(benchmark["stats"]["iterations"])
            and isinstance(record["device"]["fingerprint"], str)
            and isinstance(record["conditions"], dict)
            and isinstance(record["effective"], dict)
            and isinstance(record["data"], dict)
            and isinstance(record["throughput"]["unit"], str)
            and _positive(record["throughput"]["median"])
            and _positive(record["items_per_round"])
            and rounds
            and all(map(_positive, rounds))
            and all(map(_positive, canaries))
        )
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise BaselineError(
            f"the baseline {path} is damaged: its case number {index + 1} lacks what a comparison "
            "needs; write it again with --baseline-save"
        )


def _positive(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < LARGEST
