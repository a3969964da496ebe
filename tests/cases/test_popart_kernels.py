"""PopART's kernels: options, operation counts, and real runs of small cases."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipubench.bench_kernels.bench_popart_conv import PopartConv
from ipubench.bench_kernels.bench_popart_lstm import PopartLstm
from tests.support.harness import ROOT, Outcome, records_in, refused, run_pytest
from tests.support.kernels import DATA

Array = Any  # float64 np.ndarray
SMALL_LSTM = PopartLstm(batch_size=3, timesteps=5, hidden_size=16)
SMALL_CONV = PopartConv(
    batch_size=2, input_width=9, input_height=8, channel_size=3, filter_number=5
)


@pytest.fixture
def frameworks() -> None:
    for module in ("onnx", "onnxruntime", "torch"):
        pytest.importorskip(module, reason=f"{module} is not installed: make setup installs it")


# --- options ---------------------------------------------------------------------------------


def test_the_default_cases_are_the_original_programs() -> None:
    one, other = PopartLstm(), PopartConv()
    assert (one.batch_size, one.timesteps, one.hidden_size) == (1, 1, 32)
    assert (other.batch_size, other.input_width, other.input_height) == (1, 1920, 1080)
    assert (other.channel_size, other.filter_number) == (4, 64)
    assert (other.kernel_size, other.padding, other.stride) == (4, 3, 2)
    assert other.output_shape == (1, 64, 542, 962)
    for config in (one, other):
        assert (config.batches_per_step, config.steps) == (1000, 5)
        assert (config.learning_rate, config.auto_sharding) == (0.01, True)
        config.check()


ON_IPU: Dict[str, Any] = {"system": "ipu"}
STAGES: Dict[str, Any] = {**ON_IPU, "pipeline": True, "shards": 4}
APART: Dict[str, Any] = {**ON_IPU, "auto_sharding": False}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pipeline": True}, "pipeline: "),
        ({"pipeline": True, **ON_IPU}, "pipeline: "),
        ({"shards": 2}, "shards=2 .*IPU"),
        ({"shards": 2, "pipeline": True}, "shards=2 .*IPU"),
        ({"replicas": 2}, "replicas=2 .*IPU"),
        ({"tensor_tile_mapping": True}, "SDK 2.0 .*--profile"),
        ({"tensor_tile_mapping": True, **ON_IPU}, "SDK 2.0 "),
        ({"report_hw_cycle_count": True}, "report_hw_cycle_count=True .*IPU"),
        ({"recompute": True}, "recompute: inference "),
        ({"recompute": True, "mode": "evaluation"}, "recompute: evaluation "),
        ({"engine": "onnxruntime", "mode": "training"}, "engine onnxruntime: "),
        ({"engine": "torch", **ON_IPU}, "engine torch: "),
        ({"precision": "16.32", **ON_IPU}, "precision 16.32: "),
        ({"convolution_options": "{"}, "convolution_options: .* JSON"),
        ({"convolution_options": '{"partialsType": "half"}'}, "partialsType .* .*IPU"),
        ({"data": "real"}, "data real: "),
        ({**STAGES, "batches_per_step": 3, "mode": "evaluation"}, "batches_per_step of 4 "),
        ({**STAGES, "batches_per_step": 6, "mode": "training"}, "batches_per_step of 7 "),
        ({"shards": 2, **ON_IPU}, "shards=2: inference "),
        ({**APART, "shards": 2}, "shards=2: inference "),
        ({**APART, "shards": 4, "mode": "training"}, "auto_sharding off: .* shards=2"),
    ],
)
@pytest.mark.parametrize("config", [PopartLstm(), PopartConv()])
def test_impossible_options_are_refused(config: Any, changes: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **changes).check()


@pytest.mark.parametrize("mode", ["evaluation", "training"])
def test_an_lstm_has_a_hidden_unit_for_each_label(mode: str) -> None:
    one = PopartLstm(hidden_size=1)
    one.check()
    with pytest.raises(ValueError, match=f"hidden_size=1: .*{mode}"):
        dataclasses.replace(one, mode=mode).check()
    dataclasses.replace(one, mode=mode, hidden_size=2).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"auto_sharding": False},
        {"recompute": True, "mode": "training"},
        {"convolution_options": '{"availableMemoryProportion": "0.2"}'},
        {"shards": 2, "pipeline": True, "mode": "evaluation", "system": "ipu"},
        {"shards": 2, "auto_sharding": False, "mode": "evaluation", "system": "ipu"},
        {"replicas": 4, "system": "ipu"},
    ],
)
def test_valid_options_are_accepted(changes: Dict[str, Any]) -> None:
    config = dataclasses.replace(PopartLstm(), **changes)
    config.check()
    assert config.ipus == (config.shards * config.replicas if config.system == "ipu" else 0)


def test_an_image_smaller_than_the_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel_size 9: input_width"):
        PopartConv(input_width=2, kernel_size=9).check()


def test_labels_are_fed_only_for_losses() -> None:
    kernels: List[Tuple[Any, Tuple[int, ...]]] = [
        (SMALL_LSTM, (5, 1, 3)),
        (SMALL_CONV, SMALL_CONV.output_shape),
    ]
    for config, shape in kernels:
        assert [spec.name for spec in config.feed(DATA).specs] == ["inputs"]
        for mode in ("evaluation", "training"):
            inputs, labels = dataclasses.replace(config, mode=mode).feed(DATA).specs
            assert (inputs.uniform, labels.classes, labels.shape) == ((-1.0, 1.0), 2, shape)


def test_generated_batches_use_the_original_seed() -> None:
    config = dataclasses.replace(SMALL_LSTM, mode="training", data="generated")
    feed = config.feed(DATA)
    first, second = feed.drawn(2)
    assert not np.array_equal(first["inputs"], second["inputs"])
    assert -1 <= first["inputs"].min() < first["inputs"].max() < 1
    assert set(np.unique(first["labels"])) == {0, 1}
    # The values are those of NumPy's generator, however many batches a runtime keeps.
    (alone,) = feed.drawn(1)
    for name, values in alone.items():
        np.testing.assert_array_equal(values, first[name])
    expected = np.random.RandomState(42).uniform(-1, 1, (5, 3, 16))
    np.testing.assert_array_equal(first["inputs"], expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"mode": "synthetic", "values": "standard normal"}),
        ({"use_zero_values": True}, {"mode": "synthetic", "values": "zeros"}),
        ({"data": "generated"}, {"mode": "generated", "values": "uniform -1 to 1, seed 42"}),
        ({"data": "generated", "use_zero_values": True}, {"mode": "generated", "values": "zeros"}),
        (
            {"mode": "evaluation"},
            {"mode": "synthetic", "values": "standard normal", "labels": "whole numbers 0 to 1"},
        ),
    ],
)
def test_the_record_names_the_values_used(
    changes: Dict[str, Any], expected: Dict[str, str]
) -> None:
    config = dataclasses.replace(SMALL_LSTM, **changes)
    assert config.feed(DATA).describe() == expected
    if config.use_zero_values:
        assert not any(np.any(values) for values in config.feed(DATA).drawn(1)[0].values())


def test_operations_per_item() -> None:
    # A timestep multiplies [1, 3] with [3, 12] for the inputs and, from the second on, for the
    # state.
    product = 2 * 3 * 12
    assert PopartLstm(timesteps=1, hidden_size=3).flops_per_item() == product
    config = PopartLstm(timesteps=4, hidden_size=3)
    assert config.flops_per_item() == (4 + 3) * product
    assert dataclasses.replace(config, mode="evaluation").flops_per_item() == 7 * product
    # Gradients: 4 for the inputs' weights, 3 for the state's, and 3 for the state.
    assert dataclasses.replace(config, mode="training").flops_per_item() == (7 + 10) * product

    squares = PopartConv(
        input_width=4, input_height=4, channel_size=2, filter_number=3, kernel_size=3, padding=1,
        stride=1,
    )  # fmt: skip
    # Along a row of 4 pixels the outputs use 2, 3, 3 and 2 of them.
    assert squares.flops_per_item() == 2 * 2 * 3 * 10 * 10
    assert dataclasses.replace(squares, mode="training").flops_per_item() == 2 * 2 * 2 * 3 * 100
    whole = PopartConv(padding=0, kernel_size=2, stride=2, input_width=4, input_height=4)
    assert whole.flops_per_item() == 2 * 4 * 64 * 16
    assert PopartConv().flops_per_item() == pytest.approx(2 * 4 * 64 * 16 * 542 * 962, rel=0.01)


# --- real runs -------------------------------------------------------------------------------


def run(folder: Path, *words: str, framework: str = "") -> Outcome:
    environment = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(folder / "leases"),
        "COLUMNS": "100",
    }
    common = ["--device=cpu", "--budget=0.3", f"--results-dir={folder / 'results'}"]
    return run_pytest(ROOT, environment, *common, *words, framework=framework)


@pytest.mark.framework
def test_small_cases_are_measured_in_every_mode(frameworks: None, tmp_path: Path) -> None:
    outcome = run(tmp_path, "bench_kernels/bench_popart_lstm.py", framework="torch")
    outcome.assert_code(0)
    assert "6 passed" in outcome.text
    found = records_in(tmp_path / "results")
    assert set(found) == {
        f"popart-lstm-{mode}-{data}"
        for mode in ("inference", "evaluation", "training")
        for data in ("synthetic", "generated")
    }
    for name, record in found.items():
        engine = "torch" if "training" in name else "onnxruntime"
        assert record["effective"]["engine"] == engine
        assert record["throughput"]["unit"] == "items/s"
        assert record["compute"]["share"] < 1
        assert not record["implausible"]


@pytest.mark.framework
def test_options_reach_the_case_and_its_graph_is_saved(frameworks: None, tmp_path: Path) -> None:
    import onnx

    words = [
        "bench_kernels/bench_popart_conv.py", "-k", "training-generated", "--zero-values",
        "--set=input_width=16", "--set=input_height=8", "--set=batch_size=2",
        "--set=recompute=yes", "--set=auto_sharding=no", f"--save-graph={tmp_path / 'graphs'}",
    ]  # fmt: skip
    outcome = run(tmp_path, *words, framework="torch").assert_code(0)
    outcome.line("not used on a host: auto_sharding")
    ((name, record),) = records_in(tmp_path / "results").items()
    assert record["items_per_round"] == 2 * record["rounds"]["batches_per_step"]
    assert record["effective"]["recompute"] is True
    assert record["data"]["values"] == "zeros"
    saved = onnx.load(tmp_path / "graphs" / name / "model.onnx")
    onnx.checker.check_model(saved, full_check=True)
    assert [value.name for value in saved.graph.output] == ["output", "loss"]


def test_a_bad_option_is_one_usage_error(tmp_path: Path) -> None:
    file = "bench_kernels/bench_popart_lstm.py"
    for word in ("pipeline=yes", "engine=tensorrt", "learning_rate=fast"):
        words = [file, "--device=cpu", f"--set={word}", f"--results-dir={tmp_path}"]
        assert word.split("=")[0] in refused(ROOT, os.environ, *words).text
