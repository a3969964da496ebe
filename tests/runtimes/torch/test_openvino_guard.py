"""OpenVINO's compiler crashes in a process of its own; nothing reports what is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.packages import version_of
from ipubench.fixtures.runtimes.torch import openvino_guard
from tests.support.harness import ROOT
from tests.support.openvino import needs_openvino

pytestmark = pytest.mark.framework
# Programs that take the place of the one that compiles.
CRASH = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]
HANG = [sys.executable, "-c", "import time; time.sleep(60)"]
FAIL = [sys.executable, "-c", "raise SystemExit(1)"]
SHAPE = (2, 3, 16, 16)


@pytest.fixture(scope="module")
def torch() -> Any:
    needs_openvino()
    return pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of good answers, empty."""
    monkeypatch.setenv("IPUBENCH_CACHE_DIR", str(tmp_path))
    return tmp_path / "openvino-compiles"


def small(torch: Any) -> Any:
    nn = torch.nn
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(8, 5)).eval()


def build(torch: Any, engine: str = "openvino", images: int = 2) -> Any:
    from ipubench.fixtures.runtimes.torch.engines import build_engine

    shape, device = (images, *SHAPE[1:]), torch.device("cpu")
    return build_engine(
        engine, small(torch), shape, torch.float32, torch.float32, device, normalise=False
    )


def program(monkeypatch: pytest.MonkeyPatch, words: List[str]) -> None:
    monkeypatch.setattr(openvino_guard, "PROGRAM", words)


def test_a_network_that_crashes_the_compiler_ends_in_one_message(
    torch: Any, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, CRASH)
    with pytest.raises(CaseError, match="engine=openvino: .* SIGSEGV .*; use --set=engine=auto"):
        build(torch)
    assert list(kept.iterdir()) == []


def test_a_compiler_that_does_not_end_is_given_up(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, HANG)
    monkeypatch.setattr(openvino_guard, "MOST_SECONDS", 0.5)
    with pytest.raises(CaseError, match=r"does not end within 0\.5 s"):
        build(torch)


def test_pytorch_is_measured_without_openvino(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, CRASH)
    monkeypatch.setitem(sys.modules, "openvino", None)
    built = build(torch, "auto")
    assert built.name != "openvino"
    images = torch.randn(SHAPE)
    with torch.inference_mode():
        assert torch.allclose(built.run(images), small(torch)(images), atol=1e-5)


def test_a_good_answer_is_kept_for_the_same_network_alone(
    torch: Any, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(torch)
    assert len(list(kept.iterdir())) == 1
    program(monkeypatch, CRASH)
    build(torch)
    with pytest.raises(CaseError, match="SIGSEGV"):
        build(torch, images=3)


def test_an_error_of_the_compiler_is_left_to_the_run_itself(
    torch: Any, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, FAIL)
    build(torch)
    assert list(kept.iterdir()) == []


def test_a_network_that_cannot_be_written_down_is_one_message(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    no_folder = contextlib.nullcontext(tmp_path / "file")
    monkeypatch.setattr(scratch, "folder", lambda kind: no_folder)
    with pytest.raises(CaseError, match=r"cannot be written to .*file/model\.xml; .*TMPDIR"):
        build(torch)


# Every attempt to reach another host is refused and written down.
WATCHED = """
import sys
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        print(event, arguments[-1] if event == "socket.connect" else arguments[0], flush=True)
        raise OSError("this test has no network")
sys.addaudithook(watch)
{program}
"""
PLAIN = "import openvino"
OURS = """
import torch
from ipubench.fixtures.runtimes.torch.engines import build_engine
network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
kind, device = torch.float32, torch.device("cpu")
build_engine("openvino", network, (1, 3, 16, 16), kind, kind, device, normalise=False)
"""


def watched(program: str, home: Path) -> str:
    root = ROOT
    environment: Dict[str, str] = {
        # Without these variables OpenVINO takes the machine for one that tests software.
        **{name: value for name, value in os.environ.items() if name in ("PATH", "LANG")},
        "HOME": str(home),
        "PYTHONPATH": str(root),
        "IPUBENCH_CACHE_DIR": str(home.parent / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.format(program=program)],
        cwd=str(home),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


def test_converting_and_compiling_reports_nothing_to_anybody(torch: Any, tmp_path: Path) -> None:
    if not version_of("openvino-telemetry"):
        pytest.skip("needs openvino-telemetry, which OpenVINO installs")
    ours, plain = tmp_path / "ours", tmp_path / "plain"
    ours.mkdir()
    plain.mkdir()
    # OpenVINO by itself does report, and the test sees it.
    assert "socket." in watched(PLAIN, plain)
    assert watched(OURS, ours) == ""
    assert not (ours / "intel").exists()
