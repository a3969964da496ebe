"""Published figures: the nearest one with its conditions, next to ours and without a verdict."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, List, Sequence

import pytest

from ipubench.bench_inference.bench_cnn_torch import IPU, POD4
from ipubench.bench_training.bench_application import POD16 as APPLICATION
from ipubench.bench_training.bench_cnn_tensorflow import M2000, POD16
from ipubench.fixtures.case.options import CaseConfig, plain_options
from ipubench.plugins.record.structs import Benchmark
from ipubench.plugins.report.markdown import markdown
from ipubench.plugins.report.page import page
from ipubench.plugins.report.published import (
    HEADING,
    conditions_of,
    figures,
    last_lines,
    line_of,
    nearest,
)
from ipubench.plugins.results.case_row import CaseRow
from tests.support.reports import benchmark, report_on
from tests.support.stored import changed


def measured(config: CaseConfig, framework: str, ipus: int, **changes: Any) -> Benchmark:
    """Return a benchmark of a case on hardware."""
    facts = {
        "record.framework": framework,
        "record.config": {**plain_options(config), **changes},
        "record.device.kind": "ipu",
        "record.effective": {"precision": "bfloat16", "ipus": ipus},
    }
    return changed(benchmark(f"{config.name}-ipu"), facts)


def test_every_figure_names_its_source() -> None:
    assert len(figures()) > 50
    for figure in figures():
        assert figure.source.startswith("https://")
        assert figure.throughput > 0 and figure.platform
        assert figure.mode in ("inference", "training")
        assert figure.conditions.ipus is None or figure.conditions.ipus > 0


@pytest.mark.parametrize(
    ("batch", "data", "expected"),
    [(90, "synthetic", 17105), (90, "real", 16470), (4, "synthetic", 7438), (1, "real", 3529)],
)
def test_the_nearest_conditions_win(batch: int, data: str, expected: float) -> None:
    case = measured(IPU["resnet50"], "torch", 1, micro_batch_size=batch, data=data)
    found = nearest(case.record)
    assert found is not None and found.throughput == expected
    line = line_of(case.record)
    assert "differs: framework PopRT (ONNX), here PyTorch" in line
    for same in ("IPUs", "data", "batch", "precision"):
        assert f"; {same} " not in line.split("differs:")[1]


def test_training_is_compared_by_the_global_batch() -> None:
    case = measured(POD16["resnet50"], "tensorflow", 16)
    found = nearest(case.record)
    assert found is not None
    assert (found.mode, found.conditions.ipus) == ("training", 16)
    assert found.conditions.batch_scope == "global"


def test_a_figure_for_equally_many_ipus_is_nearer_than_for_four_times_as_many() -> None:
    case = measured(M2000["resnet50"], "tensorflow", 4)
    found = nearest(case.record)
    assert found is not None and found.conditions.ipus == 4


def test_a_resnet50_matches_no_other_variant_and_uses_its_training_batch() -> None:
    line = line_of(measured(APPLICATION["resnet50_mlperf_pod16_bs20"], "tensorflow", 16).record)
    assert "batch 1920 global" in line
    assert "TensorFlow 1, here TensorFlow 2; chip Bow" in line
    # 3520 is requested, which 16 replicas of 18 images cannot form.
    lars = measured(APPLICATION["resnet50_mlperf_pod16_lars"], "tensorflow", 16).record
    assert conditions_of(lars).batch_text() == "3456 global"


@pytest.mark.parametrize(
    ("chip", "name", "ipus", "throughput", "differs"),
    [
        # MLPerf's logs; their precision is not stated.
        ("GC200", "resnet50_mlperf_pod16_bs20", 16, 27527, ("framework", "precision")),
        ("Bow", "resnet50_mlperf_pod16_bs20", 16, 42029, ("framework",)),
        ("GC200", "resnet50_mlperf_pod16_lars", 16, 29543, ("framework", "batch", "precision")),
        ("Bow", "resnet50_mlperf_pod16_lars", 16, 43127, ("framework", "batch", "precision")),
    ],
)
def test_the_chip_is_a_condition(
    chip: str, name: str, ipus: int, throughput: float, differs: Sequence[str]
) -> None:
    case = measured(APPLICATION[name], "tensorflow", ipus)
    record = changed(case, {"record.device.details": {"chip": chip}}).record
    found = nearest(record)
    assert found is not None and found.throughput == throughput
    names = [text.split()[0] for text in found.conditions.differences(conditions_of(record))]
    assert names == list(differs)


def test_another_chip_is_named_if_there_is_no_figure_of_the_same() -> None:
    case = measured(POD16["resnext101"], "tensorflow", 16)
    line = line_of(changed(case, {"record.device.details": {"chip": "GC200"}}).record)
    assert "12,221 images/s (Bow Pod16" in line and "chip Bow, here GC200" in line


def test_validation_has_its_own_batch() -> None:
    config = dataclasses.replace(APPLICATION["resnet50_mlperf_pod16_bs20"], training=False)
    assert conditions_of(measured(config, "tensorflow", 16).record).batch == 115


def test_the_modified_network_finds_its_own_figure() -> None:
    line = line_of(measured(POD16["efficientnet-b4-g16"], "tensorflow", 16).record)
    assert "8,936 images/s (Bow Pod16, Pre-SDK2.5, batch 6144 global; " in line
    assert "variant" not in line and "IPUs" not in line


def test_a_difference_is_described() -> None:
    line = line_of(measured(POD4["resnet50_infer_pod4"], "torch", 4).record)
    assert "; IPUs 1, here 4" in line


@pytest.mark.parametrize("kind", ["cpu", "cuda", "ipu-model"])
def test_other_devices_have_no_figure(kind: str) -> None:
    case = changed(measured(IPU["resnet50"], "torch", 1), {"record.device.kind": kind})
    assert last_lines([case]) == []


def test_most_cases_have_none() -> None:
    case = measured(IPU["mobilenet-v3-small"], "torch", 1)
    assert nearest(case.record) is None
    assert last_lines([case]) == []


def test_the_figures_end_the_table_and_the_report_without_a_verdict(tmp_path: Path) -> None:
    cases = [measured(IPU["resnet50"], "torch", 1)]
    lines = last_lines(cases)
    assert lines[0] == f"{HEADING}:" and len(lines) == 2
    many = last_lines(cases * 20)
    assert many[-1].startswith("  8 more ") and "--report=DIR" in many[-1]
    report = report_on(cases)
    text = markdown(report)
    assert HEADING in text and "https://github.com/graphcore/PopRT" in text
    assert {row.kind for row in report.rows()} == {row.kind for row in plain_rows()}
    assert "PopRT (ONNX)" in page(report)


def plain_rows() -> List[CaseRow]:
    return report_on([benchmark("resnet50-ipu")]).rows()
