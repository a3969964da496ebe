"""The form of a baseline file, and what makes one sound: the types of plugins/record/structs.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Set

import msgspec

from ipubench.fixtures.case.untrusted import parse_json
from ipubench.plugins.baseline.entries import Key, key_of
from ipubench.plugins.record.record import NAMESPACE
from ipubench.plugins.record.structs import Document

FORMAT = 2
#: How msgspec ends a message, and what of a path is the same in every benchmark.
PLACE = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
OF_CASE = re.compile(r"benchmarks\[(\d+)\]\.?(?:extra_info\.ipubench(?:\.|$))?(.*)")
# Of a file, so that it takes at most some 500 MB of memory, whatever it holds.
MOST_BYTES = 64 << 20
MOST_VALUES = 2_500_000


class BaselineError(Exception):
    """A baseline cannot be used; the message says which file, why and what to do."""


def check_size(text: str) -> None:
    """Raise ValueError for a text of more bytes or values than are ever read."""
    # A character has a byte at least; a comma in a text counts as well.
    if len(text) > MOST_BYTES or sum(map(text.count, ",[{")) > MOST_VALUES:
        raise ValueError(
            f"it has more than {MOST_BYTES >> 20} MiB or {MOST_VALUES:,} values; keep fewer cases "
            "in one file, or fewer processes of each"
        )


def decode(path: Path, text: str) -> Dict[str, Any]:
    """Return the document in a file's text, not yet checked."""
    try:
        check_size(text)
        document = parse_json(text)
    except ValueError as error:
        raise BaselineError(
            f"the baseline {path} cannot be read as JSON ({error}); restore it, or write another "
            "one with --baseline-save"
        ) from error
    part = document.get(NAMESPACE) if isinstance(document, dict) else None
    version = part.get("format") if isinstance(part, dict) else None
    if type(version) is not int or not isinstance(document.get("benchmarks"), list):
        raise BaselineError(
            f"{path} is not a baseline of this suite; write one with --baseline-save"
        )
    if version != FORMAT:
        raise BaselineError(
            f"the baseline {path} has format {version}, this version reads {FORMAT}: use another "
            "ipubench, or write the baseline again"
        )
    loaded: Dict[str, Any] = document
    return loaded


def problems(document: Dict[str, Any]) -> List[str]:
    """Return what is wrong with a document: which case, where, what."""
    try:
        msgspec.convert(
            {**document, "benchmarks": list(map(inward, document["benchmarks"]))}, Document
        )
    except msgspec.ValidationError as error:
        return [_describe(document, str(error))]
    return _repeated(document["benchmarks"])


def inward(benchmark: Any) -> Any:
    """Return a benchmark with all of its ``extra_info`` that is not ours in one place."""
    extra = benchmark.get("extra_info") if isinstance(benchmark, dict) else None
    if not isinstance(extra, dict) or NAMESPACE not in extra:
        return benchmark
    others = {name: value for name, value in extra.items() if name != NAMESPACE}
    return {**benchmark, "extra_info": {NAMESPACE: extra[NAMESPACE], "others": others}}


def _describe(document: Dict[str, Any], message: str) -> str:
    found = PLACE.search(message)
    place = found.group(1) if found else ""
    case = ""
    of_case = OF_CASE.fullmatch(place)
    if of_case:
        benchmark = document["benchmarks"][int(of_case.group(1))]
        name = benchmark.get("fullname") if isinstance(benchmark, dict) else None
        case = (
            name if isinstance(name, str) and name else f"case number {int(of_case.group(1)) + 1}"
        )
        place = of_case.group(2)
    return ": ".join(filter(None, (case, place, PLACE.sub("", message))))


def _repeated(benchmarks: List[Dict[str, Any]]) -> List[str]:
    seen: Set[Key] = set()
    found = []
    for key in map(key_of, benchmarks):
        if key in seen:
            found.append(f"{key.nodeid}: stored twice for {key.fingerprint} and one configuration")
        seen.add(key)
    return found
