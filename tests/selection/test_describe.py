"""The output of `--describe`, for configurations without a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, List

from ipubench.bench_training.bench_application import POD16
from ipubench.bench_training.bench_cnn_tensorflow import POD16 as CNN
from ipubench.fixtures.case.cases import Case
from ipubench.fixtures.case.options import CaseConfig
from ipubench.plugins.listing.describe import describe


@dataclass(frozen=True)
class Own(CaseConfig):
    """A configuration with an option that names a secret."""

    api_token: str = field(default="hunter2hunter2", metadata={"help": "who asks"})


def lines_of(*configs: CaseConfig) -> List[str]:
    items: Any = [
        SimpleNamespace(
            nodeid=f"bench_x.py::bench_x[{config.name}]",
            callspec=SimpleNamespace(params={"ipubench_case": Case(config, config.name)}),
        )
        for config in configs
    ]
    return describe(items)


def test_of_many_values_four_are_shown() -> None:
    configs = [Own(name=str(steps), steps=steps) for steps in (1, 2, 2, 3, 4, 5)]
    assert [line.split()[0] for line in lines_of(*configs) if line.startswith("  steps")] == [
        "steps=1|2|3|4|..."
    ]
    (line,) = (line for line in lines_of(*configs) if "api_token" in line)
    assert line == "  api_token=*** (str): who asks"


def test_the_global_batch_of_a_weight_update_is_shown() -> None:
    (line,) = (line for line in lines_of(POD16["resnet50_16ipus_8k_bn_pipeline"]) if "8192" in line)
    assert "global batch size: 8192 (" in line
    assert re.findall(r" (\d+)\b", line) == ["8192", "16", "4", "128"]
    assert any("global batch size: 16384 (" in line for line in lines_of(CNN["resnet50"]))
    assert not any("global batch size: " in line for line in lines_of(Own(name="a")))


def test_several_functions_list_shared_options_once() -> None:
    items: Any = [
        SimpleNamespace(
            nodeid=f"bench_{name}.py::bench_{name}",
            callspec=SimpleNamespace(params={"ipubench_case": Case(Own(name, steps=steps), name)}),
        )
        for name, steps in (("a", 1), ("b", 2))
    ]
    lines = describe(items)
    assert lines[1:3] == ["bench_a.py::bench_a: 1 case", "  steps=1"]
    assert lines[4:6] == ["bench_b.py::bench_b: 1 case", "  steps=2"]
    assert lines[7] == "all of them:" and any("api_token=***" in line for line in lines[8:])
    assert "  steps=2 (int): " in "".join(describe(items, verbose=True))
