"""The measuring process: allocator, memory, versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipubench.plugins.processes import revision
from ipubench.plugins.record import host_process
from ipubench.plugins.run import conditions
from ipubench.plugins.run.conditions import apply_conditions, tune_allocator
from tests.support.harness import ROOT
from tests.support.repository import IDENTITY
from tests.support.stored import a_benchmark

# Counts page faults of buffers that glibc maps again each time unless told to keep them.
FAULTS = """
import resource, sys
from ipubench.plugins.run.conditions import tune_allocator
if sys.argv[1] == "tuned":
    print(tune_allocator())
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    bytearray(64 << 20)
before = faults()
for _ in range(10):
    bytes(bytearray(64 << 20))
print(faults() - before)
"""


def page_faults(allocator: str) -> int:
    answer = subprocess.run(
        [sys.executable, "-c", FAULTS, allocator],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(answer.stdout.split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's mallopt: run it on Linux")
def test_the_tuned_allocator_keeps_large_buffers() -> None:
    assert all(tune_allocator().values())
    # 128 MiB per round are 32,768 pages of 4 KiB.
    assert page_faults("tuned") < page_faults("system") / 10


def test_poplars_environment_is_a_condition_of_ipus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = '{"debug.instrument": "true"}'
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", options)
    found = apply_conditions("ipu", "cores", "tuned")
    assert found == {"allocator": "system", "poplar_engine_options": options}
    model = apply_conditions("ipu-model", "none", "system")
    assert model["poplar_engine_options"] == options and model["affinity"] == "none"
    assert apply_conditions("cuda", "cores", "tuned") == {"allocator": "system"}


@pytest.mark.parametrize(
    ("library", "found"),
    [
        (SimpleNamespace(mallopt=lambda *_: 1), "tuned"),
        (
            SimpleNamespace(mallopt=lambda number, _: int(number == -1)),
            "tuned in part: {'mmap_threshold': False, 'trim_threshold': True}",
        ),
        (None, "tuned in part: {'mmap_threshold': False, 'trim_threshold': False}"),
    ],
)
def test_a_c_library_may_support_part_of_the_tuning(
    library: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "ctypes", SimpleNamespace(CDLL=lambda _: library))
    assert apply_conditions("cpu", "cores", "tuned")["allocator"] == found
    assert apply_conditions("cpu", "cores", "system")["allocator"] == "system"


def test_peak_memory_includes_a_freed_buffer() -> None:
    peak = host_process.PeakMemory()
    before = peak.read()
    buffer = bytearray(200 << 20)
    assert len(buffer) == 200 << 20
    del buffer
    assert peak.read() - before > 150 << 20
    if peak.since == "case":
        assert host_process.PeakMemory().read() < peak.read() + (50 << 20)


def test_versions_name_what_is_installed() -> None:
    assert host_process.versions()["pytest"] == pytest.__version__
    assert "poptorch" not in host_process.versions()


def test_the_software_of_two_results_differs_in_some_or_all_cases() -> None:
    old, new, without = (
        a_benchmark([1.0], versions={"python": "3.11.2", "torch": torch}, git=git).record
        for torch, git in (
            ("2.12.1", "0123456789abcdef"),
            ("2.13.0", "fedcba9876543210-dirty"),
            ("2.13.0", None),
        )
    )
    commit = "commit 0123456789ab -> fedcba987654-dirty"
    assert host_process.software_changes([(old, new)]) == f"torch 2.12.1 -> 2.13.0, {commit}"
    assert host_process.software_changes([(old, old)]) == host_process.software_changes([]) == ""
    three = [(old, new), (old, old), (old, without)]
    assert host_process.software_changes(three) == (
        f"torch 2.12.1 -> 2.13.0 (2 of 3 cases), {commit} (1 of 3 cases), "
        "commit 0123456789ab -> none (1 of 3 cases)"
    )


def test_no_program_that_a_repository_names_runs(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> '{noted}'\n")
    program.chmod(0o755)
    repository = tmp_path / "repository"
    subprocess.check_call(["git", "init", "-q", str(repository)])
    (repository / "file").write_text("a")
    for words in (("add", "file"), (*IDENTITY, "commit", "-q", "-m", "one")):
        subprocess.check_call(["git", *words], cwd=str(repository))
    (repository / ".git" / "hooks" / "post-index-change").symlink_to(program)
    subprocess.check_call(["git", "config", "core.fsmonitor", str(program)], cwd=str(repository))
    # The file's time differs from the index's, which git then writes again.
    for number, asked in enumerate((["describe", "--always", "--dirty"], ["status"]), 1):
        os.utime(repository / "file", (number, number))
        assert host_process.git_output(repository, *asked)
        revision._git("--against", repository, *asked)
    assert not noted.exists()


def test_a_folder_without_git_has_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if an alias or a hook of another repository runs us."""
    other = tmp_path / "other"
    subprocess.check_call(["git", "init", "-q", str(other)])
    words = ["git", *IDENTITY, "commit", "-q", "--allow-empty", "-m", "empty"]
    subprocess.check_call(words, cwd=str(other))
    assert host_process.git_revision(other) is not None
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert host_process.git_revision(tmp_path) is None
