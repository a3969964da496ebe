"""YAML with line numbers: plain data of the safe types, each value with the line it stands on.

The nodes of the document are turned into data once each, however many aliases lead to them, so a
small file cannot become a large one. Merge keys (``<<``) work as in any YAML reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List

import yaml

from ipubench.plugins.benchmarks_yml.errors import SpecError, short

LARGEST = 1 << 20  # bytes
LONGEST_NUMBER = 100  # characters
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# Neither a process nor a file can be given these: the null character and halves of others.
UNUSABLE = re.compile("[\0\ud800-\udfff]")
MERGE = "tag:yaml.org,2002:merge"
MAPPING, SEQUENCE = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


@dataclass(frozen=True)
class Value:
    """A value and its line, from 1."""

    line: int
    #: str, int, float, bool, None, a date; a list of Values; or a dict of Values by name.
    data: Any
    #: Of a mapping: the line of each key.
    lines: Dict[str, int] = field(default_factory=dict)


def read(path: Path, name: str) -> Value:
    """Return the document in a file that messages call ``name``. Raises SpecError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SpecError(name, 0, f"cannot be read ({error.strerror})") from None
    if len(content) > LARGEST:
        raise SpecError(name, 0, "is larger than 1 MiB, and so no list of benchmarks")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(name, line, "this is not UTF-8") from None
    return parse(text, name)


def parse(text: str, name: str) -> Value:
    """Return the document that a text is. Raises SpecError, whatever the text."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    # Escapes and directives with impossible numbers are ValueErrors, deep nesting the last.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise _syntax(name, text, error) from None
    if root is None:
        raise SpecError(name, 0, "is empty; an entry is a name with cmd: COMMAND below it")
    try:
        return _Builder(name).build(root)
    except RecursionError:
        raise SpecError(name, 0, "is nested too deeply") from None


def _syntax(name: str, text: str, error: Exception) -> SpecError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark is not None else 0
    position = getattr(error, "position", None)
    if isinstance(position, int):  # of a character that YAML does not allow
        line = text.count("\n", 0, position) + 1
    if isinstance(error, RecursionError):
        return SpecError(name, 0, "is nested too deeply")
    problem = str(getattr(error, "problem", None) or error).split("\n")[0]
    return SpecError(name, line, f"is not valid YAML: {problem}")


class _Builder:
    """Turns nodes into Values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: Dict[int, Value] = {}
        self._open: List[int] = []  # nodes that are being built, to find one within itself
        self._scalars = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node) -> Value:
        found = self._made.get(id(node))
        if found is None:
            if id(node) in self._open:
                raise self._error(node, "this contains itself")
            self._open.append(id(node))
            found = self._made[id(node)] = self._new(node)
            self._open.pop()
        return found

    def _new(self, node: yaml.Node) -> Value:
        if isinstance(node, yaml.ScalarNode):
            return Value(node.start_mark.line + 1, self._scalar(node))
        if node.tag not in (MAPPING, SEQUENCE):
            raise self._error(node, f"the type {short(node.tag)} is of no use here")
        if isinstance(node, yaml.SequenceNode):
            return Value(node.start_mark.line + 1, [self.build(item) for item in node.value])
        return self._mapping(node)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        # Python's whole numbers have no bound, and the time to read them none either.
        if node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
            raise self._error(node, f"a number has at most {LONGEST_NUMBER} characters")
        if UNUSABLE.search(node.value):
            raise self._error(node, "a text holds no null character and no half of a character")
        try:
            return self._scalars.construct_object(node)
        except yaml.YAMLError as error:
            raise self._error(node, str(getattr(error, "problem", error))) from None
        # PyYAML's own, for text that is not of the type it is tagged with.
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            raise self._error(node, f"{short(node.value)} is no value of its type") from None

    def _mapping(self, node: yaml.Node) -> Value:
        own: Dict[str, Value] = {}
        lines: Dict[str, int] = {}
        merged: List[Value] = []
        for key, value in node.value:
            if key.tag == MERGE:
                merged += self._merged(value)
                continue
            text = self._scalar(key) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(text, str):
                raise self._error(key, "a name is text; put it in quotes")
            if text in own:
                raise self._error(key, f"{short(text)} stands twice here")
            own[text], lines[text] = self.build(value), key.start_mark.line + 1
        found: Dict[str, Value] = {}
        merged_lines: Dict[str, int] = {}
        for source in merged:
            found.update(source.data)
            merged_lines.update(source.lines)
        return Value(node.start_mark.line + 1, {**found, **own}, {**merged_lines, **lines})

    def _merged(self, node: yaml.Node) -> List[Value]:
        """Return what a ``<<`` merges, the weakest first; the order of keys is PyYAML's."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(part, yaml.MappingNode) for part in parts):
            raise self._error(node, "<< merges a mapping, or a list of mappings")
        return [self.build(part) for part in reversed(parts)]

    def _error(self, node: yaml.Node, problem: str) -> SpecError:
        return SpecError(self.name, node.start_mark.line + 1, problem)
