"""`gate.yml` and `@pytest.mark.gate`: how much slower each case may become, by metric.

    default: {throughput: 2%}
    cases:
      "*resnet50*": {throughput: 3%, latency_p99: 10%}
      "*hmc*": ignore

Thresholds are fractions in Python (3% is 0.03). What is said of fewer cases wins over what is said
of more: the file's ``default``, then ``--gate`` (which replaces its throughput for one run), then a
case's marker, then the file's ``cases``, of which the last that matches wins, metric by metric.
A file wins over a marker because the marker's author knows the case, and the file's the machine.
"""

from __future__ import annotations

import fnmatch
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

import yaml

from ipubench.fixtures.case.options import nearest
from ipubench.plugins.record.process_sample import METRICS, THROUGHPUT
from ipubench.plugins.record.values import fraction, shortened

FILE_NAME = "gate.yml"
IGNORE = "ignore"
STRING = "tag:yaml.org,2002:str"
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
KEYS = ("default", "cases")
FORM = "percentages by metric, such as {throughput: 3%}, or ignore"


class PolicyError(Exception):
    """A policy cannot be used; the message says where, why and what to write."""


@dataclass(frozen=True)
class Rule:
    """What one entry says: a threshold per metric, None where it is not judged; or ignore all."""

    thresholds: Dict[str, Optional[float]] = field(default_factory=dict)
    ignore: bool = False


@dataclass(frozen=True)
class Limits:
    """What holds for one case. A metric without a threshold is not judged."""

    thresholds: Dict[str, float]
    ignore: bool  # shown, never judged
    sources: Dict[str, str]  # metric -> where its threshold comes from


@dataclass(frozen=True)
class Policy:
    """The thresholds of a run: of a file, of ``--gate``, or of both."""

    name: str = FILE_NAME
    default: Rule = field(default_factory=Rule)
    cases: Tuple[Tuple[str, Rule], ...] = ()
    gate: Optional[float] = None

    @classmethod
    def load(cls, path: Path, gate: Optional[float] = None) -> Policy:
        """Read a policy file. Raises PolicyError."""
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except (OSError, ValueError) as error:
            raise PolicyError(f"the policy {path} cannot be read: {error}") from None
        return cls.parse(text, str(path), gate)

    @classmethod
    def parse(cls, text: str, name: str, gate: Optional[float] = None) -> Policy:
        """Read the text of a policy file called ``name``. Raises PolicyError."""
        return cls(Path(name).name, *_Reader(name).read(text), gate)

    def limits(self, nodeid: str, markers: Mapping[str, float]) -> Limits:
        """Return what holds for a case; ``markers`` as :func:`marker_thresholds` returns them."""
        given = {} if self.gate is None else {THROUGHPUT: self.gate}
        entries: List[Tuple[str, Rule]] = [
            (f"{self.name}, default", self.default),
            ("--gate", Rule(dict(given))),
            ("its marker", Rule(dict(markers))),
        ]
        entries += [
            (f"{self.name}, {pattern}", rule)
            for pattern, rule in self.cases
            if matches(pattern, nodeid)
        ]
        thresholds: Dict[str, float] = {}
        sources: Dict[str, str] = {}
        ignore = False
        for source, rule in entries:
            if rule.ignore or rule.thresholds:
                ignore = rule.ignore
            for metric, value in rule.thresholds.items():
                if value is None:
                    thresholds.pop(metric, None)
                    sources.pop(metric, None)
                else:
                    thresholds[metric], sources[metric] = value, source
        return Limits({} if ignore else thresholds, ignore, {} if ignore else sources)

    def unused(self, nodeids: Iterable[str]) -> List[str]:
        """Return the patterns that match none of the cases."""
        known = list(nodeids)
        return [
            pattern
            for pattern, _ in self.cases
            if not any(matches(pattern, nodeid) for nodeid in known)
        ]


def matches(pattern: str, nodeid: str) -> bool:
    """Tell whether a pattern means a case: ``*`` is anything, ``?`` one character.

    Brackets are themselves: every identifier has them, and is a pattern as it stands.
    """
    return fnmatch.fnmatchcase(nodeid, pattern.replace("[", "[[]"))


class _Reader:
    """Reads the nodes of a YAML document, which know their lines; no object is constructed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, text: str) -> Tuple[Rule, Tuple[Tuple[str, Rule], ...]]:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        # Escapes and directives with impossible numbers are ValueErrors, deep nesting the last.
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            raise self._syntax(error) from None
        if root is None:
            raise PolicyError(f"the policy {self.name} is empty; write default: {{throughput: 5%}}")
        default = Rule()
        cases: List[Tuple[str, Rule]] = []
        for key, node, value in self._entries(root, "a policy", f"{' and '.join(KEYS)}"):
            if key == "default":
                default = self._rule(value, "default")
            elif key == "cases":
                cases = [
                    (pattern, self._rule(rule, pattern))
                    for pattern, _, rule in self._entries(value, "cases", "patterns")
                ]
            else:
                raise self._error(node, f"{shortened(key)} is no key of a policy", key, KEYS)
        return default, tuple(cases)

    def _rule(self, node: yaml.Node, where: str) -> Rule:
        if _text(node) == IGNORE:
            return Rule(ignore=True)
        thresholds: Dict[str, Optional[float]] = {}
        for key, at, value in self._entries(node, shortened(where), FORM):
            if key not in METRICS:
                raise self._error(at, f"{shortened(key)} is no metric", key, METRICS)
            thresholds[key] = self._threshold(value, key)
        if not thresholds:
            raise self._error(node, f"{shortened(where)} says nothing; it holds {FORM}")
        return Rule(thresholds)

    def _threshold(self, node: yaml.Node, metric: str) -> Optional[float]:
        text = _text(node)
        if text == IGNORE:
            return None
        if isinstance(node, yaml.ScalarNode) and node.tag in NUMBERS:
            raise self._error(
                node, f"{metric}: {shortened(node.value)} has no unit; {_spell(node)}"
            )
        if text is None:
            raise self._error(node, f"{metric} needs a percentage, such as 3%, or ignore")
        try:
            return fraction(text)
        except ValueError as error:
            raise self._error(node, f"{metric}: {error}") from None

    def _entries(
        self, node: yaml.Node, what: str, holds: str
    ) -> List[Tuple[str, yaml.Node, yaml.Node]]:
        """Return (key, its node, value) of a mapping with distinct keys of text."""
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{what} holds {holds}")
        found: Dict[str, Tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            text = _text(key)
            if text is None:
                raise self._error(key, f"{what} holds {holds}, each under a name")
            if text in found:
                raise self._error(key, f"{shortened(text)} stands twice in {what}")
            found[text] = (key, value)
        return [(text, key, value) for text, (key, value) in found.items()]

    def _error(
        self, node: yaml.Node, problem: str, word: str = "", known: Iterable[str] = ()
    ) -> PolicyError:
        line = f", line {node.start_mark.line + 1}"
        allowed = f"{nearest(word, known)}; there are {', '.join(known)}" if known else ""
        return PolicyError(f"the policy {self.name}{line}: {problem}{allowed}")

    def _syntax(self, error: Exception) -> PolicyError:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        if isinstance(error, RecursionError):
            problem = "it is nested too deeply"
        else:
            problem = str(getattr(error, "problem", None) or error).split("\n")[0]
        words = f"{problem} {getattr(error, 'context', '')}"
        hint = "; write a pattern that begins with * in quotes" if "alias" in words else ""
        return PolicyError(f"the policy {self.name}{line} is not valid YAML: {problem}{hint}")


def _text(node: yaml.Node) -> Optional[str]:
    """Return a node's text, or None where it is a number, a mapping or anything else."""
    scalar = isinstance(node, yaml.ScalarNode)
    return str(node.value) if scalar and node.tag == STRING else None


def _spell(node: yaml.ScalarNode) -> str:
    """Say how a bare number is written, in both ways that it may have been meant."""
    try:
        value = float(node.value)
    except (ValueError, OverflowError):
        value = math.nan
    if not 0 < value < 1000:
        return "write a percentage, such as 3%"
    if value >= 1:
        return f"write {value:g}%"
    return f"write {100 * value:g}% or {value:g}%"
