"""Changes every option of a case to find accepted options without effect.

Tests return a case's requests to its runtime or server as texts; see
tests/nightly/test_*options_act.py. Cheap requests come first: if they differ, no expensive one is
made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Callable, Dict, Generator, Iterator, List, Set

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import CaseConfig, check_value, option_types
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.devices.base import DeviceError

#: Recorded only: they name the case or limit its measurement, and no runtime reads them.
RECORDED = {"name", "steps"}
#: Other command-line options choose them; there is a case for each.
CHOSEN = {"mode", "system", "data"}
#: Other values for options that are not just numbers, words or booleans; unsuitable ones are
#: skipped.
TEXTS: Dict[str, List[Any]] = {
    "available_memory_proportion": [(0.15,), (15.0,)],
    "device_mapping": [(0,), (1, 0)],
    "lars_skip_list": [("beta",)],
    "learning_rate_schedule": [(0.5, 0.75)],
    "lr_schedule_params": [Parameters({"initial_learning_rate": 4e-3})],
    "lr_warmup_params": [Parameters({"warmup_mode": "shift", "warmup_epochs": 1})],
    "preferred_batch_sizes": [(4,)],
    "optimizer_params": [Parameters({"momentum": 0.5})],
    "norm_layer": [
        Parameters({"name": "custom_batch_norm", "momentum": 0.5}),
        Parameters({"name": "group_norm", "num_groups": 4}),
    ],
    "convolution_options": ['{"use128BitConvUnitLoad": "true"}'],
    "matmul_options": ['{"use128BitConvUnitLoad": "true"}'],
    "pipeline_splits": [("layer1", "layer2"), ("layer1/0/conv1",)],
}


def others(config: CaseConfig, name: str) -> Iterator[Any]:
    """Yield other values of an option that its declaration accepts."""
    (field,) = [item for item in dataclasses.fields(config) if item.name == name]
    now, kind = getattr(config, name), option_types(type(config))[name]
    found: List[Any] = list(TEXTS.get(name, ()))
    found += list(field.metadata.get("choices") or ())
    if kind is bool:
        found.append(not now)
    elif kind in (int, float, Fraction):
        found += [now + 1, now * 2, now + 32, now / 2 if kind is float else now // 2]
    elif kind is str and not found:
        found.append("other")
    for value in found:
        try:
            check_value(type(config), name, value)
        except ValueError:
            continue
        if value != now:
            yield value


def changed(config: CaseConfig, name: str) -> List[CaseConfig]:
    """Return the case with other values of an option, without those that are refused."""
    found = []
    for value in others(config, name):
        one = dataclasses.replace(config, **{name: value})
        try:
            one.check()
        except ValueError:
            continue
        if name not in one.idle():
            found.append(one)
    return found


#: Yields a case's requests as texts, cheapest first; the caller stops at the first difference.
Asked = Callable[[Any], Generator[str, None, None]]


def without_effect(config: CaseConfig, asked: Asked, known: Set[str]) -> Set[str]:
    """Return the options whose accepted values never change the requests to the runtime.

    ``known`` options may do so; on a host, IPU options are only recorded, too.
    """
    before = list(asked(config))
    assert list(asked(config)) == before, "two requests of one case differ"
    options = [item for item in dataclasses.fields(config) if config.ipus or not _of_ipus(item)]
    names = {item.name for item in options} - CHOSEN - RECORDED - known
    found = set()
    for name in sorted(names):
        assert list(others(config, name)) or _one_value(config, name), f"no other value of {name}"
        if _same(changed(config, name), asked, before):
            found.add(name)
    return found


def _same(ones: List[CaseConfig], asked: Asked, before: List[str]) -> bool:
    """Return whether some case runs and all that run make the same requests."""
    ran = False
    for one in ones:
        with contextlib.suppress(CaseError, DeviceError), contextlib.closing(asked(one)) as texts:
            if any(text != known for text, known in zip_longest(texts, before)):
                return False
            ran = True
    return ran


def _of_ipus(field: Any) -> bool:
    return bool(field.metadata.get("ipu_only"))


def _one_value(config: CaseConfig, name: str) -> bool:
    """Return whether an option accepts only its current value."""
    (field,) = [item for item in dataclasses.fields(config) if item.name == name]
    return set(field.metadata.get("choices") or ()) == {getattr(config, name)}


def plain(*parts: Any) -> str:
    """Return the parts as text without addresses."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(parts))


#: TensorFlow's counters of earlier objects: within names, as names, and in a data set's name.
COUNTED = re.compile(r'[_:-]+[0-9]+|"[0-9]+"|"\\n\\.*"')


def digest_of(graph: str) -> str:
    """Return a digest of a graph's text without TensorFlow's counters."""
    lines = sorted(COUNTED.sub("", graph).splitlines())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
