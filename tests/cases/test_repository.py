"""Runs the suite itself as a user does in the project's folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List

import pytest

from tests.support.harness import ROOT, Outcome, listed, records_in, refused, run_pytest
from tests.support.repository import run_alone

pytestmark = pytest.mark.suite
NETWORKS = "bench_inference/bench_cnn_torch.py"


@pytest.fixture
def environment(tmp_path: Path) -> Dict[str, str]:
    """Use separate locks, so that no other run is disturbed and none has to be waited for."""
    variables = {
        **os.environ,
        "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"),
        "COLUMNS": "80",
    }
    variables.pop("DATASETS_DIR", None)
    return variables


def run(environment: Dict[str, str], *words: str, framework: str = "") -> Outcome:
    return run_pytest(ROOT, environment, *words, framework=framework)


@pytest.mark.entry_point
@pytest.mark.parametrize("device", ["cpu", "ipu", "ipu-model", "cuda"])
def test_every_case_has_an_identifier_that_k_can_select(
    device: str, environment: Dict[str, str]
) -> None:
    outcome = run(environment, "--collect-only", "-q", "--sweep", f"--device={device}")
    outcome.assert_code(0)
    nodeids = [line for line in outcome.lines if "::" in line]
    assert len(nodeids) == len(set(nodeids)) > 0
    for nodeid in nodeids:
        assert re.fullmatch(r"bench_\w+/bench_\w+\.py::bench_\w+\[[A-Za-z0-9_.-]+\]", nodeid)


@pytest.mark.parametrize("path", ["bench_kernels/bench_dense.py", NETWORKS])
def test_a_bench_file_as_a_program_prints_the_pytest_command(path: str) -> None:
    outcome = run_alone(ROOT, os.environ, path, "--steps", "1").assert_code(4)
    (line,) = outcome.lines
    assert line.startswith(f"{path} ") and line.endswith(f": pytest {path} --steps 1")


DECLARES = "from ipubench import CaseConfig, cases\ncases(CaseConfig(name='a'))\n"


def test_a_program_that_starts_pytest_itself_and_a_console_go_on(tmp_path: Path) -> None:
    path = tmp_path / "bench_own.py"
    path.write_text(f"{DECLARES}if __name__ == '__main__':\n    print('on')\n")
    assert run_alone(ROOT, os.environ, str(path)).assert_code(0).lines == ["on"]
    assert run_alone(ROOT, os.environ, "-c", f"{DECLARES}print('on')").lines == ["on"]


@pytest.mark.parametrize("words", [["--results-dir", "models"], ["."]])
def test_cases_do_not_need_the_modules_of_the_tests(
    environment: Dict[str, str], tmp_path: Path, words: List[str]
) -> None:
    """Until our options are known, pytest takes a value after a space for a path."""
    (tmp_path / "hypothesis.py").write_text("raise ImportError('not installed')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    without = ("-p", "no:hypothesispytest", "--collect-only", "-q", "-k", "dense")
    outcome = run_alone(ROOT, {**environment, "PYTHONPATH": path}, "-m", "pytest", *without, *words)
    outcome.assert_code(0).line("bench_kernels/bench_dense.py::bench_dense[dense-inference-synth")


@pytest.mark.entry_point
def test_describe_lists_options_of_cases(environment: Dict[str, str]) -> None:
    outcome = run(environment, NETWORKS, "--describe", "--device=cpu", "-k", "resnet50")
    outcome.assert_code(0)
    outcome.line("  engine=auto|openvino (str): ")


def test_replacements_and_exclusions_on_a_cpu_are_reported_first(
    environment: Dict[str, str],
) -> None:
    smaller = {**environment, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    words = ["--collect-only", NETWORKS, "-k", "resnet50"]
    said = "precision 16.16: float32, marked f32, because this CPU has neither AVX512_BF16 nor AMX"
    listed(ROOT, smaller, *words, "--device=cpu").assert_code(0).line(said)
    assert said not in listed(ROOT, smaller, *words, "--device=cpu", "--precision=32.32").text
    outcome = listed(ROOT, smaller, *words, "--device=cuda", "--data=synthetic").assert_code(0)
    assert "openvino-" not in outcome.text and said not in outcome.text
    outcome.line("need a CPU for OpenVINO")


def test_in_memory_images_are_generated_in_a_sweep_and_on_a_gpu(
    environment: Dict[str, str],
) -> None:
    for more in (["--device=cpu", "--sweep"], ["--device=cuda"]):
        words = ["--collect-only", "-q", NETWORKS, "-k", "resnet50", *more]
        listed(ROOT, environment, *words).assert_code(0).line("resnet50-bs16-generated")


def test_fast_starting_cases_come_first(environment: Dict[str, str]) -> None:
    words = ["--collect-only", "-q", "-k", "resnet50", "--device=cpu"]
    found = [line for line in listed(ROOT, environment, *words).lines if "::" in line]
    functions = list(dict.fromkeys(line.split("[")[0].split("/")[-1] for line in found))
    assert functions[0] == "bench_cnn_torch.py::bench_cnn_torch"
    servers = [name for name in functions if "triton" in name or "serving" in name]
    inference = list(dict.fromkeys(line.split("::")[0] for line in found if "inference" in line))
    assert [path.split("/")[-1] for path in inference[-2:]] == [
        name.split("::")[0] for name in servers
    ]
    several = ["instances4" in line for line in found if "inference/bench_cnn_tensorflow" in line]
    assert several == sorted(several) and any(several)
    # Files named on the command line keep their order.
    named = ["bench_inference/bench_triton.py", NETWORKS]
    lines = [line for line in listed(ROOT, environment, *words, *named).lines if "::" in line]
    assert "bench_triton" in lines[0] and "bench_cnn_torch" in lines[-1]


@pytest.mark.parametrize(
    ("path", "words", "names"),
    [
        # Of the servers' clients only the informative ones.
        ("triton", ["-k", "resnet50 and triton"], ["1-sync", "4-async", "openvino-4-async"]),
        ("triton", ["-k", "resnet50-clients4-sync"], ["4-sync"]),
        (
            "triton",
            ["-k", "resnet50-clients and triton", "--data=real"],
            ["1-sync", "1-async", "4-sync", "4-async"],
        ),
        ("triton", ["-k", "resnet50-clients", "--set=request_type=sync"], ["1-sync", "4-sync"]),
        ("triton", ["-k", "resnet50-clients", "--set=clients=2"], ["2-sync", "2-async"]),
        ("triton", ["-k", "resnet50-clients", "--set=steps=2"], ["1-sync", "4-async"]),
        # One batch size uses real data.
        ("cnn_torch", ["-k", "resnet34"], ["bs1-synthetic", "bs16-synthetic", "bs16"]),
        ("cnn_torch", ["-k", "resnet34", "--data=generated"], ["bs1-generated", "bs16-generated"]),
        ("cnn_torch", ["-k", "resnet34", "--data=real"], ["bs1", "bs16"]),
        ("cnn_torch", ["-k", "resnet34-bs1-generated"], ["bs1-generated"]),
        ("cnn_torch", ["-k", "resnet34-bs1 and not bs16"], ["bs1-synthetic", "bs1"]),
        ("cnn_torch", ["-k", "resnet34", "--set=micro_batch_size=1"], ["bs1-synthetic", "bs1"]),
        (
            "cnn_torch",
            ["-k", "resnet34-bs1-generated", "--set=engine=eager"],
            ["bs1-generated-engineeager"],
        ),
    ],
)
def test_a_cpu_skips_cases_that_add_no_information(
    path: str, words: List[str], names: List[str], environment: Dict[str, str]
) -> None:
    path = f"bench_inference/bench_{path}.py"
    outcome = listed(ROOT, environment, "--collect-only", "-q", "--device=cpu", *words, path)
    found = re.findall(r"\[resnet\d+-(\S+)\]", outcome.assert_code(0).text)
    cut = [re.sub("clients|-real.*", "", name) for name in found]
    assert cut == names


def test_a_dataset_outside_the_project_is_a_path_not_a_test(
    tmp_path: Path, environment: Dict[str, str]
) -> None:
    words = ["--collect-only", "-q", "-k", "resnet50", "--device=cpu"]
    outcome = listed(ROOT, environment, *words, f"--dataset-dir={tmp_path}").assert_code(0)
    outcome.line("bench_cnn_torch[resnet50-bs16-real]")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "unrecognized arguments: --dataset-dir"),
        (["bench_inference"], "write --dataset-dir="),
    ],
)
def test_a_separate_path_argument_is_refused_with_the_option_name(
    more: List[str], said: str, tmp_path: Path, environment: Dict[str, str]
) -> None:
    """pytest may take that folder as its root and never read our conftest.py."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    refused(ROOT, environment, "--dataset-dir", str(tmp_path), *more).line(said)


@pytest.mark.parametrize("folder", ["missing", "empty", "file"])
def test_an_unusable_data_set_ends_the_run_before_it_starts(
    folder: str, tmp_path: Path, environment: Dict[str, str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    given = f"--dataset-dir={tmp_path / folder}"
    words = [NETWORKS, "-k", "resnet18-bs1-real", "--device=cpu", given]
    outcome = refused(ROOT, environment, *words, f"--results-dir={tmp_path / 'results'}")
    assert str(tmp_path / folder) in outcome.text


@pytest.mark.framework
def test_a_network_is_measured_with_three_kinds_of_data(
    tmp_path: Path, environment: Dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    from ipubench.fixtures.data.images import samples

    monkeypatch.setattr(samples, "SAMPLE_CLASSES", 1)  # eight images
    images = Path(samples.sample_folder(tmp_path / "cache").root)
    broken = sorted(images.rglob("*.jpg"))[3]
    broken.write_bytes(broken.read_bytes()[:2000])
    words = [
        NETWORKS,
        "-k",
        "mobilenet-v3-small",
        "--device=cpu",
        "--sweep",  # generated images too
        "--budget=0.1",
        "--set=micro_batch_size=1",
        f"--dataset-dir={images}",
        f"--results-dir={tmp_path / 'results'}",
    ]
    outcome = run(environment, *words, framework="torch").assert_code(0)
    outcome.line(f"1 image could not be read and was replaced: {broken.name}")
    synthetic, generated, real = records_in(tmp_path / "results").values()
    assert synthetic["name"] == "mobilenet-v3-small-bs1-synthetic"
    assert [synthetic["compile"], generated["compile"], real["compile"]] == [
        "fresh", "reused", "reused",
    ]  # fmt: skip
    assert synthetic["conditions"]["allocator"] == "tuned"
    assert 0 < synthetic["compute"]["share"] <= 1.25
    assert synthetic["compute"]["flops_per_item"] == pytest.approx(1.13e8, rel=0.01)
    assert synthetic["effective"]["engine"] in ("onednn", "compile")
    assert len(synthetic["canary"]["seconds"]) == synthetic["rounds"]["count"]
    assert real["canary"]["when"] == "before the rounds"
    assert real["data"]["images"] == 8
    assert [Path(path).name for path in real["data"]["corrupt"]] == [broken.name]
    assert real["memory"]["since"] == "case"


LAUNCHERS = {
    "resnet50-pod16": "--num-replicas=4 --num-instances=4 --ipus-per-replica=4",
    "resnext101-pod16": "--num-replicas=8 --num-instances=8 --ipus-per-replica=2",
    "efficientnet-b4-pod16": "--num-replicas=4 --num-instances=4 --ipus-per-replica=4",
    "efficientnet-b4-g16-pod16": "--num-replicas=4 --num-instances=4 --ipus-per-replica=4",
    "resnet50-m2000-bs80": "--num-replicas=4 --num-instances=4 --ipus-per-replica=1",
}


@pytest.mark.entry_point
def test_a_dry_run_has_the_published_launchers(environment: Dict[str, str]) -> None:
    # A run on real IPUs uses one kind of data; each printed command names its own.
    files = [
        f"{folder}/bench_cnn_tensorflow.py" for folder in ("bench_training", "bench_inference")
    ]
    chosen = " or ".join([*LAUNCHERS, "resnet50-ipu-bs1-synthetic"])
    outcome = run(environment, *files, "--dry-run", "--device=ipu", "-k", chosen).assert_code(0)
    paragraphs = [
        " ".join(text.replace(" \\\n", " ").split()) for text in outcome.text.split("\n\n")
    ]
    for name, launcher in LAUNCHERS.items():
        (shown,) = [text for text in paragraphs if f"bench_cnn_tensorflow[{name}-" in text]
        assert f"poprun --numa-aware=yes {launcher} " in shown, name


def test_quick_selects_the_main_networks_and_every_kernel(environment: Dict[str, str]) -> None:
    outcome = listed(ROOT, environment, "-m", "quick", "--collect-only", "-q", "--device=cpu")
    functions = {line.split("::")[1].split("[")[0] for line in outcome.lines if "::" in line}
    everything = listed(ROOT, environment, "--collect-only", "-q", "--device=cpu")
    assert functions == {
        line.split("::")[1].split("[")[0] for line in everything.lines if "::" in line
    }
    names = [line for line in outcome.lines if "bench_cnn_torch[" in line]
    assert [line.split("[")[1] for line in names] == [
        "resnet50-bs16-synthetic]",
        "mobilenet-v3-large-bs16-synthetic]",
        "efficientnet-b0-bs16-synthetic]",
        "resnet50-openvino-bs16-synthetic]",
    ]
