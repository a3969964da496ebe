"""Nearly valid inputs: bytes changed anywhere, JSON values replaced by bad ones."""

from __future__ import annotations

import json
import random
from typing import Any, Callable, List, Tuple

#: JSON texts that may stand in place of any value.
VALUES = (
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "1e300",
    "1e-300",
    "9" * 400,
    '""',
    '"x"',
    '"\\ud800"',
    '"\\u0000\\r\\u001b[2J\\u009b1m\\u202e\\n::error::"',
    '{"\\ud800": 1}',
    '"../../x"',
    json.dumps("x" * 5000),
    "[]",
    "{}",
    "[[]]",
    '{"a": 1}',
    "[" * 500 + "]" * 500,
    '{"a":' * 200 + "1" + "}" * 200,
    "[" + ",".join(["-1"] * 3000) + "]",
)
#: Bytes with a meaning in one of the formats.
BYTES = (
    *(b"\x00", b"\xff", b"\xfe\xff", b"\r", b"\n", b"\x1b[2J", b"\xed\xa0\x80", b"\\u0000"),
    *(b"[" * 300, b"{" * 300, b"*a", b"&a ", b"<<: ", b"!!binary ", b"!!python/object:os.system "),
    *(b"%YAML 9.9\n", b"9" * 400, b"1e999", b"NaN", b"{{", b"}", b"'", b'"', b"- ", b": ", b"\t"),
)
LARGEST = 1 << 16


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Return a valid input with one to four changes."""
    found = content
    if chance.random() < 0.5:
        found = _other_value(found, chance)
    for _ in range(chance.randint(0 if found != content else 1, 3)):
        found = chance.choice(CHANGES)(found, chance)
    return found[:LARGEST] if len(content) < LARGEST else found


def _other_value(content: bytes, chance: random.Random) -> bytes:
    """Replace or remove one value of a JSON document, or of one line of several."""
    lines = content.split(b"\n")
    number = chance.randrange(len(lines))
    for part, join in ((content, None), (lines[number], number)):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        changed = _replaced(value, chance)
        if join is None:
            return changed
        return b"\n".join([*lines[:join], changed, *lines[join + 1 :]])
    return content


def _replaced(value: Any, chance: random.Random) -> bytes:
    places = _places(value)
    if not places:
        return chance.choice(VALUES).encode()
    holder, key = chance.choice(places)
    if chance.random() < 0.2:
        del holder[key]
        return json.dumps(value).encode()
    mark = "\u2603 the value"
    holder[key] = mark
    return json.dumps(value).replace(json.dumps(mark), chance.choice(VALUES), 1).encode()


def _places(value: Any) -> List[Tuple[Any, Any]]:
    if isinstance(value, dict):
        keys: List[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return []
    found = [(value, key) for key in keys]
    for key in keys:
        found += _places(value[key])
    return found


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _flip(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return b"\xff"
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _insert(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.choice(BYTES) + content[at:]


def _remove(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + content[at + chance.randint(1, 20) :]


def _repeat(content: bytes, chance: random.Random) -> bytes:
    first, last = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return content[:last] + content[first:last][:200] * chance.randint(1, 50) + content[last:]


def _noise(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + bytes(chance.randrange(256) for _ in range(chance.randint(1, 40)))


CHANGES: Tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_cut, _flip, _flip, _insert, _insert),
    *(_remove, _repeat, _noise),
)
