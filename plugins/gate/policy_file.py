"""`gate.yml` and `@pytest.mark.gate`: how much slower each case may become, by metric.

    default: {throughput: 2%}
    inconclusive: fail
    cases:
      "*resnet50*": {throughput: 3%, latency_p99: 10%}
      "*hmc*": ignore
    compare_extra_info: [batch_size]
    renamed: {"test_a.py::test_old": "test_a.py::test_new"}

Thresholds are fractions in Python (3% is 0.03). The more specific setting wins, metric by metric:
the file's ``default``, then ``--gate`` (which replaces its throughput for one run), then a case's
marker, then the last matching entry of the file's ``cases``. The file wins over the marker, because
its author knows the machine; the marker's author knows only the case.
``compare_extra_info`` names keys of ``benchmark.extra_info`` that must be equal on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from ipubench.fixtures.case import yaml_reader
from ipubench.fixtures.case.errors import shortened
from ipubench.fixtures.case.yaml_reader import Fields, Value, YamlError
from ipubench.plugins.record.record import INSTRUCTIONS, METRICS
from ipubench.plugins.record.text import NO_LIMITS, GateLimits, fraction, matches

FILE_NAME = "gate.yml"
IGNORE = "ignore"
EXTRA_INFO = "compare_extra_info"
RENAMED = "renamed"
KEYS = ("default", "cases", "inconclusive", EXTRA_INFO, RENAMED)
#: The outcomes of an inconclusive case.
PASSES, FAILS = "pass", "fail"
EMPTY = "write default: {throughput: 5%}"
FORM = "percentages by metric, such as {throughput: 3%}, or ignore"


class PolicyError(Exception):
    """Raised for an unusable policy; the message names the place, the reason and the remedy."""


@dataclass(frozen=True)
class PolicyEntry:
    """One entry of a policy: a threshold per metric (None: not judged), or ignore everything."""

    thresholds: Dict[str, Optional[float]] = field(default_factory=dict)
    ignore: bool = False


@dataclass(frozen=True)
class Policy:
    """The thresholds of a run, from a file, from ``--gate``, or from both."""

    name: str = FILE_NAME
    default: PolicyEntry = field(default_factory=PolicyEntry)
    cases: Tuple[Tuple[str, PolicyEntry], ...] = ()
    gate: GateLimits = NO_LIMITS
    #: The default threshold of instructions; None: they are not counted.
    instructions: Optional[float] = None
    inconclusive: str = PASSES
    extra_info: Tuple[str, ...] = ()
    #: Old node id -> new one, of cases, functions, classes or files.
    renamed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, gate: GateLimits = NO_LIMITS) -> Policy:
        """Read a policy file. Raises PolicyError."""
        name = f"the policy {path}"
        try:
            found = _Reader(name).read(yaml_reader.read(path, name, EMPTY))
            return replace(found, name=path.name, gate=gate)
        except YamlError as error:
            raise PolicyError(str(error)) from None

    def limits(self, nodeid: str, markers: Mapping[str, float]) -> Dict[str, float]:
        """Return the threshold of each metric that is judged.

        ``markers`` as :func:`marker_thresholds` returns them.
        """
        given = {name: value for name, value in self.gate._asdict().items() if value is not None}
        usual = {} if self.instructions is None else {INSTRUCTIONS: self.instructions}
        rules = [
            PolicyEntry(dict(usual)),
            self.default,
            PolicyEntry(dict(given)),
            PolicyEntry(dict(markers)),
        ]
        rules += [rule for pattern, rule in self.cases if matches(pattern, nodeid)]
        thresholds: Dict[str, Optional[float]] = {}
        for rule in rules:
            if rule.ignore:
                thresholds.clear()
            thresholds.update(rule.thresholds)
        return {metric: value for metric, value in thresholds.items() if value is not None}

    def unused(self, nodeids: Iterable[str]) -> List[str]:
        """Return the patterns that match none of the cases."""
        known = list(nodeids)
        return [
            pattern
            for pattern, _ in self.cases
            if not any(matches(pattern, nodeid) for nodeid in known)
        ]


class _Reader:
    """Reads a policy. Its methods raise YamlError."""

    def __init__(self, name: str) -> None:
        self._fields = Fields(name)

    def read(self, root: Value) -> Policy:
        found = self._fields.mapping(root, "a policy", ", ".join(KEYS))
        for key in found:
            if key not in KEYS:
                problem = f"{shortened(key)} is not a key of a policy"
                raise self._fields.error(root.lines[key], problem, key, KEYS)
        default = self._rule(found["default"], "default") if "default" in found else PolicyEntry()
        patterns: Dict[str, Value] = {}
        if "cases" in found:
            patterns = self._fields.mapping(found["cases"], "cases", "patterns")
        return Policy(
            default=default,
            cases=tuple((name, self._rule(rule, name)) for name, rule in patterns.items()),
            inconclusive=self._inconclusive(found.get("inconclusive")),
            extra_info=self._names(found.get(EXTRA_INFO)),
            renamed=self._renamed(found.get(RENAMED)),
        )

    def _renamed(self, value: Optional[Value]) -> Dict[str, str]:
        if value is None:
            return {}
        names = self._fields.mapping(value, RENAMED, "old: new")
        return {old: self._fields.text(new, "a new name") for old, new in names.items()}

    def _inconclusive(self, value: Optional[Value]) -> str:
        if value is None:
            return PASSES
        if value.data not in (PASSES, FAILS):
            problem = f"inconclusive must be {PASSES} or {FAILS}, not {shortened(value)}"
            raise self._fields.error(value.line, problem)
        return str(value.data)

    def _names(self, value: Optional[Value]) -> Tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value.data, list):
            problem = f"{EXTRA_INFO} must be a list of keys, such as [batch_size]"
            raise self._fields.error(value.line, problem)
        return tuple(self._fields.text(one, "a key of extra_info") for one in value.data)

    def _rule(self, value: Value, where: str) -> PolicyEntry:
        if value.data == IGNORE:
            return PolicyEntry(ignore=True)
        thresholds: Dict[str, Optional[float]] = {}
        for metric, threshold in self._fields.mapping(value, shortened(where), FORM).items():
            if metric not in METRICS:
                problem = f"{shortened(metric)} is not a metric"
                raise self._fields.error(value.lines[metric], problem, metric, METRICS)
            thresholds[metric] = self._threshold(threshold, metric)
        if not thresholds:
            raise self._fields.error(value.line, f"{shortened(where)} is empty; write {FORM}")
        return PolicyEntry(thresholds)

    def _threshold(self, value: Value, metric: str) -> Optional[float]:
        given = value.data
        if given == IGNORE:
            return None
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            problem = f"{metric}: {shortened(given)} has no unit; write a percentage, such as 3%"
        elif not isinstance(given, str):
            problem = f"{metric} needs a percentage, such as 3%, or ignore"
        else:
            try:
                return fraction(given)
            except ValueError as error:
                problem = f"{metric}: {error}"
        raise self._fields.error(value.line, problem)
