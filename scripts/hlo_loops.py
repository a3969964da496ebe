"""Find the loops of an HLO text that Poplar turns into repeats without a condition.

The rules are those of graphcore/tensorflow, compiler/plugin/poplar/driver/passes
(while_loop_condition_simplify.cc, while_loop_to_repeat_simplify.cc), after inlining and removal of
dead code.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")


class Instruction(NamedTuple):
    """One line: its operation, the names in it, operands first, and its text."""

    opcode: str
    names: List[str]
    text: str

    def attribute(self, name: str) -> str:
        """Return an attribute such as ``index``."""
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.text)
        assert found, (name, self.text)
        return found[1]


class Module:
    """The instructions by their unique names, and each computation's result."""

    def __init__(self, text: str) -> None:
        self.code: Dict[str, Instruction] = {}
        self.roots: Dict[str, str] = {}
        within = ""
        for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
            opened = re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line)
            within = opened[1] if opened else within
            found = INSTRUCTION.match(line)
            if found is not None:
                names = re.findall(r"%([\w.\-]+)", found[4])
                self.code[found[2]] = Instruction(found[3], names, found[4])
                if found[1]:
                    self.roots[within] = found[2]

    def _read(self, name: str) -> Instruction:
        """Return the instruction that makes a value, past those that change nothing."""
        one = self.code[name]
        return self._read(one.names[0]) if one.opcode in ("reshape", "copy") else one

    def loops(self) -> List[Tuple[str, str]]:
        """Return (name, why it stays a while loop, or "") for each loop."""
        whiles = [(name, one) for name, one in self.code.items() if one.opcode == "while"]
        return [(name, self._why_not(one)) for name, one in whiles]

    def _why_not(self, loop: Instruction) -> str:
        counters = self._counters(self.roots[loop.attribute("condition")])
        if counters is None:
            return "its condition compares something else than counters with constants"
        if len(counters) > 2:
            return f"its condition has {len(counters)} comparisons"
        start, result = self._read(loop.names[0]), self._read(self.roots[loop.attribute("body")])
        for place in counters:
            first = self._number(start.names[place]) if start.opcode == "tuple" else None
            if first is None or (first and len(counters) > 1):
                return f"counter {place} starts at {first}, and there are {len(counters)}"
            grown = self._read(result.names[place])
            counter = self._counter(grown.names[0]) if grown.opcode == "add" else None
            if counter != place or self._number(grown.names[1]) != 1:
                return f"counter {place} does not grow by 1"
        return ""

    def _counters(self, name: str) -> Optional[List[int]]:
        """Return the counters that a condition compares with a constant, or None."""
        one = self._read(name)
        if one.opcode == "get-tuple-element" and self._read(one.names[0]).opcode == "call":
            results = self._read(self.roots[self._read(one.names[0]).attribute("to_apply")])
            return self._counters(results.names[int(one.attribute("index"))])
        if one.opcode == "and":
            left, right = (self._counters(operand) for operand in one.names[:2])
            return None if left is None or right is None else left + right
        if one.opcode == "constant" and one.text.startswith("true"):
            return []
        if one.opcode == "compare" and one.attribute("direction") == "LT":
            counter, bound = self._counter(one.names[0]), self._number(one.names[1])
            return None if counter is None or bound is None else [counter]
        return None

    def _counter(self, name: str) -> Optional[int]:
        """Return the index in the loop's tuple that a value is read from."""
        one = self._read(name)
        read = one.opcode == "get-tuple-element" and self._read(one.names[0]).opcode == "parameter"
        return int(one.attribute("index")) if read else None

    def _number(self, name: str) -> Optional[int]:
        found = re.match(r"(-?\d+)\)", self._read(name).text)
        return int(found[1]) if found and self._read(name).opcode == "constant" else None
