"""Texts about a case from its record."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ipubench.plugins.record.record import ran_by, sample_of
from ipubench.plugins.record.structs import Canary, Contention
from tests.support.stored import a_benchmark, changed


@pytest.mark.parametrize(
    ("effective", "asked", "device", "said"),
    [
        ({"engine": "openvino", "precision": "bfloat16"}, "16.16", "cpu", "openvino"),
        ({"engine": "onednn", "precision": "float32"}, "16.16", "cpu", "onednn f32"),
        ({"engine": "onednn", "precision": "float32"}, "32.32", "cpu", "onednn"),
        ({"engine": "eager", "precision": "float32"}, "16.32", "cpu", "f32"),
        ({"xla": True, "precision": "bfloat16"}, "16.16", "cpu", "XLA"),
        ({"xla": False, "precision": "bfloat16"}, "16.16", "cpu", ""),
        ({"engine": "poptorch", "precision": "float16"}, "16.16", "ipu", ""),
        ({"precision": "float32"}, "16.16", "fake", ""),
    ],
)
def test_an_engine_and_a_replaced_precision_are_named(
    effective: Dict[str, Any], asked: str, device: str, said: str
) -> None:
    config = {"record.config": {"precision": asked}, "record.device.kind": device}
    measured = changed(a_benchmark([1.0], effective=effective), config)
    assert ran_by(measured.record) == said


@pytest.mark.parametrize(
    ("when", "kept"), [("before each round", [0, 2]), ("before the rounds", [0, 1, 2, 3])]
)
def test_canaries_of_disturbed_rounds_are_left_out_and_no_others(
    when: str, kept: List[int]
) -> None:
    """If all canaries came before the rounds, none belongs to a round."""
    canary = Canary("arithmetic", [1.0, 2.0, 3.0, 4.0], when)
    contention = Contention(
        lost=[0.0, 0.5, 0.0, 0.5], limit=0.02, kept=[True, False, True, False], enough=True
    )
    measured = a_benchmark([0.1] * 4, canary=canary, contention=contention)
    sample = sample_of(measured, fresh=True)
    assert sample.canaries == [canary.seconds[number] for number in kept]
    assert len(sample.seconds) == 2
