"""Which loops of an HLO text Poplar turns into repeats, whose condition no device evaluates.

The rules are those of graphcore/tensorflow, compiler/plugin/poplar/driver/passes
(while_loop_condition_simplify.cc, while_loop_to_repeat_simplify.cc), after calls are inlined and
what nobody reads has gone.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

#: The least value of "smaller than", and the counter's place in the loop's tuple.
Bound = Tuple[int, int]


class Instruction(NamedTuple):
    """One line of a computation."""

    opcode: str
    operands: Tuple[str, ...]
    text: str  # between the parentheses
    attributes: str


class Computation(NamedTuple):
    """The instructions of a computation by name, and the name of its result."""

    instructions: Dict[str, Instruction]
    root: str


def loops(text: str) -> List[Tuple[str, str]]:
    """Return (name, why it stays a while, or "") of each loop of an HLO module's text."""
    computations = parse(text)
    found = []
    for computation in computations.values():
        for name, instruction in computation.instructions.items():
            if instruction.opcode == "while":
                found.append((name, why_not(computations, computation, instruction)))
    return found


def parse(text: str) -> Dict[str, Computation]:
    """Return an HLO module's computations by name."""
    found: Dict[str, Computation] = {}
    name, root, lines = "", "", {}
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        opened = re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line)
        if opened and not line.startswith((" ", "HloModule")):
            name, root, lines = opened[1], "", {}
        elif line.startswith("}"):
            found[name] = Computation(lines, root)
        elif " = " in line:
            left, right = line.split(" = ", 1)
            label = left.split()[-1].lstrip("%")
            lines[label] = instruction_of(right)
            root = label if left.split()[0] == "ROOT" else root
    return found


def instruction_of(text: str) -> Instruction:
    """Return what stands right of an instruction's name."""
    rest = text[_closing(text, 0) + 1 :] if text.startswith("(") else text.split(" ", 1)[1]
    opcode, opened = rest.strip().split("(", 1)[0], rest.index("(")
    closed = _closing(rest, opened)
    inside = rest[opened + 1 : closed]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    return Instruction(opcode, operands, inside, rest[closed + 1 :])


def why_not(all_of: Dict[str, Computation], outside: Computation, loop: Instruction) -> str:
    """Return why a while stays one; "": it becomes a repeat."""
    condition, body = (all_of[_attribute(loop, name)] for name in ("condition", "body"))
    bounds = _bounds(all_of, condition, condition.root)
    if bounds is None:
        return "its condition is no comparison of counters with constants"
    if len(bounds) > 2:
        return f"its condition has {len(bounds)} comparisons"
    start = outside.instructions[loop.operands[0]]
    result = body.instructions[body.root]
    for _, place in bounds:
        first = _constant(outside, start.operands[place]) if start.opcode == "tuple" else None
        if first is None or (first and len(bounds) > 1):
            return f"counter {place} starts at {first}, beside another from 0"
        grown = body.instructions[result.operands[place]]
        if not _is_increment(body, grown, place):
            return f"counter {place} does not grow by 1"
    return ""


def _bounds(
    all_of: Dict[str, Computation], within: Computation, name: str
) -> Optional[List[Bound]]:
    """Return (bound, counter) of each comparison that a value needs; None for another value."""
    one = within.instructions[name]
    if one.opcode == "get-tuple-element" and within.instructions[one.operands[0]].opcode == "call":
        call = within.instructions[one.operands[0]]
        called = all_of[_attribute(call, "to_apply")]
        results = called.instructions[called.root]
        return _bounds(all_of, called, results.operands[int(_attribute(one, "index"))])
    if one.opcode in ("reshape", "copy", "bitcast"):
        return _bounds(all_of, within, one.operands[0])
    if one.opcode == "constant" and one.text == "true":
        return []
    if one.opcode == "and":
        parts = [_bounds(all_of, within, operand) for operand in one.operands]
        return None if None in parts else [bound for part in parts for bound in part or ()]
    if one.opcode == "compare" and _attribute(one, "direction") == "LT":
        counter = within.instructions[one.operands[0]]
        bound = _constant(within, one.operands[1])
        if counter.opcode == "get-tuple-element" and bound is not None:
            held = within.instructions[counter.operands[0]].opcode == "parameter"
            return [(bound, int(_attribute(counter, "index")))] if held else None
    return None


def _constant(within: Computation, name: str) -> Optional[int]:
    one = within.instructions[name]
    if one.opcode in ("copy", "reshape", "bitcast"):
        return _constant(within, one.operands[0])
    return int(one.text) if re.fullmatch(r"-?\d+", one.text) and one.opcode == "constant" else None


def _is_increment(body: Computation, one: Instruction, place: int) -> bool:
    if one.opcode != "add":
        return False
    left, right = one.operands
    counter = body.instructions[left]
    return (
        counter.opcode == "get-tuple-element"
        and int(_attribute(counter, "index")) == place
        and _constant(body, right) == 1
    )


def _attribute(one: Instruction, name: str) -> str:
    found = re.search(rf"\b{name}=%?([\w.\-]+)", one.attributes)
    assert found, (name, one)
    return found[1]


def _closing(text: str, opened: int) -> int:
    """Return where the parenthesis that opens there closes."""
    depth = 0
    for place in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    raise ValueError(f"nothing closes the parenthesis at {opened} of {text!r}")
