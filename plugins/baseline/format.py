"""The form of a baseline file, and what makes one sound: plugins/baseline/schema.json."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

from ipubench.fixtures.case.untrusted import parse_json
from ipubench.plugins.baseline.entries import Key, key_of
from ipubench.plugins.record.record import NAMESPACE

FORMAT = 2
SCHEMA = Path(__file__).with_name("schema.json")
# Schemas of numbers, and the least number of each.
NUMBERS = {"#/$defs/positive": 1e-30, "#/$defs/amount": 0.0, "#/$defs/number": -1e30}
LONGEST_REASON = 100
MOST_PROBLEMS = 100  # that are looked for
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
    # The first tell enough of a file in which all is wrong, and finding all takes minutes.
    errors = list(itertools.islice(_validator().iter_errors(document), MOST_PROBLEMS))
    # Of several problems with one value the outermost says most.
    errors.sort(key=lambda error: len(error.absolute_path))
    found = [_describe(document, list(error.absolute_path), error.message) for error in errors]
    return found or _repeated(document["benchmarks"])


def _describe(document: Dict[str, Any], path: List[Any], message: str) -> str:
    case = ""
    if path[:1] == ["benchmarks"] and len(path) > 1:
        benchmark = document["benchmarks"][path[1]]
        name = benchmark.get("fullname") if isinstance(benchmark, dict) else None
        case = name if isinstance(name, str) and name else f"case number {path[1] + 1}"
        path = path[2:]
    # The reason is at the end of the message, after the value, which may be long.
    reason = message if len(message) <= LONGEST_REASON else f"...{message[-LONGEST_REASON:]}"
    return ": ".join(filter(None, (case, ".".join(map(str, path)), reason)))


def _repeated(benchmarks: List[Dict[str, Any]]) -> List[str]:
    seen: Set[Key] = set()
    found = []
    for key in map(key_of, benchmarks):
        if key in seen:
            found.append(f"{key.nodeid}: stored twice for {key.fingerprint} and one configuration")
        seen.add(key)
    return found


@functools.lru_cache(maxsize=None)
def _validator() -> Any:
    # Imported only where a file is read or written: collection must stay quick.
    from jsonschema import Draft202012Validator, validators

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    quick = {"items": _items, "$ref": _reference}
    return validators.extend(Draft202012Validator, quick)(schema)


# The library takes seconds for a file's numbers one by one: what is plainly sound is left out.


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import Draft202012Validator

    reference = items.get("$ref") if isinstance(items, dict) else None
    if reference in NUMBERS and isinstance(instance, list):
        for index, value in enumerate(instance):
            if not _is_sound(value, reference):
                yield from validator.descend(value, items, path=index)
        return
    yield from Draft202012Validator.VALIDATORS["items"](validator, items, instance, schema)


def _reference(validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import Draft202012Validator

    if reference in NUMBERS and _is_sound(instance, reference):
        return
    yield from Draft202012Validator.VALIDATORS["$ref"](validator, reference, instance, schema)


def _is_sound(value: Any, reference: str) -> bool:
    return type(value) in (float, int) and NUMBERS[reference] <= value <= 1e30
