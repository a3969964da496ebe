"""Whether two programs have the same operations and values, whatever the order of their tracing.

A program is a text of scripts.image_programs. An operation is known by its kind, its attributes and
the operations whose values it takes or which it waits for, a placeholder by its number. TensorFlow
on a host may still add up a sum of three tensors in another order if it knows their shapes, which
changes the last bit; within the loop of a training step it does not.
"""

from __future__ import annotations

import hashlib
import re
from typing import Dict, List, Match, Sequence, Tuple

HEAD = re.compile(r"(function\d+): \d+ inputs")
OPERATION = re.compile(r"(%\d+) (.*?)\((.*?)\) (.*)")
PLACE = re.compile(r"%\d+|in\d+")
FUNCTION = re.compile(r"function\d+")
#: Follows from the function, and counts its inputs.
READ_ONLY = re.compile(r"_read_only_resource_inputs=(list \{.*?\}|\w+)")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def data_flow(lines: Sequence[str]) -> str:
    """Return a digest of a program that is independent of the order of its operations.

    Equal operations that have a state, such as two random ones with one seed, are not told apart.
    """
    functions: Dict[str, List[str]] = {}
    name = ""
    for line in lines:
        head = HEAD.fullmatch(line)
        name = head[1] if head else name
        functions.setdefault(name, []).append(line)
    return _Digests(functions).of("")


class _Digests:
    def __init__(self, functions: Dict[str, List[str]]) -> None:
        self._functions = functions
        self._known: Dict[Tuple[str, Sequence[str]], str] = {}

    def of(self, name: str, inputs: Sequence[str] = ()) -> str:
        """Return the digest of a function. Without ``inputs`` they are known by their number."""
        if name not in self._functions:
            return name
        if (name, inputs) not in self._known:
            self._known[name, inputs] = self._computed(self._functions[name], inputs)
        return self._known[name, inputs]

    def _computed(self, lines: Sequence[str], inputs: Sequence[str]) -> str:
        found = [OPERATION.fullmatch(line) for line in lines]
        operations = {match[1]: match for match in found if match}
        holders = [place for place, match in operations.items() if match[2] == "Placeholder"]
        known = {f"in{index}": value for index, value in enumerate(inputs)}
        known.update((place, f"placeholder {number}") for number, place in enumerate(holders))
        waiting = list(operations)
        while waiting:
            place = waiting.pop()
            if place in known:
                continue
            taken = PLACE.findall(operations[place][3])
            needed = [one for one in taken if one in operations and one not in known]
            if needed:
                waiting += [place, *needed]
            else:
                known[place] = self._operation(operations[place], known)
        others = [_named(line, known) for line, match in zip(lines, found) if not match]
        others = [HEAD.sub("", line) for line in others]
        of_holders = [operations[place][4] for place in holders]
        return digest(others, of_holders, sorted(known[place] for place in operations))

    def _operation(self, match: Match[str], known: Dict[str, str]) -> str:
        _, kind, taken, attributes = match.groups()
        operands = _named(taken, known).split(", ")
        values = tuple(operand for operand in operands if operand[:1] != "^")
        waited = sorted(operand for operand in operands if operand[:1] == "^")
        if kind in CALLS:  # the order of a function's inputs is that of their first use
            attributes = READ_ONLY.sub("", attributes)
            attributes = FUNCTION.sub(lambda name: self.of(name[0], values), attributes)
            return digest(kind, attributes, waited)
        attributes = FUNCTION.sub(lambda name: self.of(name[0]), attributes)
        return digest(kind, attributes, values, waited)


def _named(text: str, known: Dict[str, str]) -> str:
    return PLACE.sub(lambda place: known.get(place[0], place[0]), text)


def digest(*parts: object) -> str:
    """Return a short name of values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
