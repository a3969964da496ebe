"""Runs that a signal ends: their files are complete, and their processes end with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.harness import ROOT, Project, start_pytest

# Runs the suite many times, so Python 3.8 skips it (make test38).
pytestmark = pytest.mark.slow

# A run that ignores all exceptions and never ends.
HANGING = """
import pathlib, time

def pytest_runtest_call():
    pathlib.Path("hangs").touch()
    while True:
        try:
            time.sleep(300)
        except BaseException:
            pass
"""


def test_sigterm_ends_a_run_like_ctrl_c(project: Project) -> None:
    """Code that catches every error does not catch it."""
    source = (project.folder / "bench_fake.py").read_text()
    terminated = source.replace(
        'if config.trouble == "error":\n        raise CaseError(',
        'if "beta-generated" in str(meter.case):\n'
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        except Exception:\n"
        "            pass\n"
        "        raise CaseError(",
    )
    assert terminated != source
    terminated += (
        "\nfrom tests.support.fake_device import FakeDevice\n"
        "FakeDevice.release = lambda self: print('the device was released')\n"
    )
    (project.folder / "bench_fake.py").write_text(terminated)
    outcome = project.run("-k", "beta", "-s").assert_code(143)
    outcome.line("the device was released")
    outcome.line("  beta-synthetic ")
    outcome.line("interrupted with 1 of 2 cases done")
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize("then", ["pass", "raise ValueError", "pytest.skip('no')"])
def test_a_case_that_catches_sigterm_is_interrupted(project: Project, then: str) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    caught = source.replace(
        'if config.trouble == "error":',
        'if "beta-generated" in str(meter.case):\n'
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        except BaseException:\n"
        f"            {then}\n"
        '    if config.trouble == "error":',
    )
    assert caught != source
    (project.folder / "bench_fake.py").write_text(f"{caught}\nimport pytest\n")
    outcome = project.run("-k", "beta or delta").assert_code(143)
    outcome.line("interrupted with 1 of ")
    assert "FAILED" not in outcome.text
    outcomes = [line for line in project.journal() if line["type"] == "outcome"]
    assert [line["outcome"] for line in outcomes] == ["passed"]
    assert "beta-generated" not in outcomes[0]["case"]


def test_a_second_sigterm_ends_a_hanging_run(project: Project) -> None:
    project.add_to_conftest(HANGING)
    words = ["bench_fake.py", "-k", "beta", "--device=fake"]
    run = start_pytest(project.folder, project.environment, *words)
    deadline = time.monotonic() + 120
    while not (project.folder / "hangs").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    while run.is_running() and time.monotonic() < deadline:
        run.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    if run.is_running():
        run.send_signal(signal.SIGKILL)
    assert run.wait().code == 143


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fresh_process_ends_with_its_run(project: Project, number: int) -> None:
    project.run("-k", "beta-synthetic", "--baseline-save=main", "--processes=1").assert_code(0)
    source = (project.folder / "bench_fake.py").read_text()
    hanging = source.replace(
        'if config.trouble == "error":',
        'if "IPUBENCH_LEASE_HOLDER" in os.environ:\n'
        "        import pathlib, time\n"
        '        pathlib.Path("pid.part").write_text(str(os.getpid()))\n'
        '        os.rename("pid.part", "pid")\n'
        "        time.sleep(300)\n"
        '    if config.trouble == "error":',
    )
    assert hanging != source
    (project.folder / "bench_fake.py").write_text(hanging)
    words = ["-k", "beta-synthetic", "--baseline=main", "--gate=5%", "--device=fake"]
    slow = {**project.environment, "IPUBENCH_FAKE_SLOWDOWN": "1.5"}
    run = start_pytest(project.folder, slow, "bench_fake.py", *words)
    pid_file = project.folder / "pid"
    deadline = time.monotonic() + 120
    while not pid_file.exists() and time.monotonic() < deadline and run.is_running():
        time.sleep(0.05)
    assert pid_file.exists(), run.wait().text
    pid = int(pid_file.read_text())
    assert is_running(pid)
    run.send_signal(number)
    outcome = run.wait()
    outcome.assert_code(143 if number == signal.SIGTERM else -number)
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)
    if number != signal.SIGKILL:
        outcome.line("interrupted with 0 of 1 cases done")


def test_sigterm_at_the_end_of_a_run_keeps_its_files(project: Project) -> None:
    (project.folder / "ending.py").write_text(
        "import os, signal\ndef pytest_sessionfinish():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    path = f"{project.environment['PYTHONPATH']}:{project.folder}"
    words = ["-k", "beta", "--baseline-save=main", "--processes=1", "-p", "ending"]
    outcome = project.run(*words, env={"PYTHONPATH": path}).assert_code(143)
    outcome.line("baseline with 2 cases written to")
    assert len(project.baseline()["benchmarks"]) == 2
    assert "interrupted" not in outcome.text


# Sends a signal at one moment; the last registered plugin is called first.
AT_A_MOMENT = """
import atexit, os, signal, pytest

def send():
    for _ in range({times}):
        os.kill(os.getpid(), signal.{name})

class Configured:
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self):
        {configure}

@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    config.pluginmanager.register(Configured())

@pytest.hookimpl(trylast=True)
def pytest_load_initial_conftests():
    {load}

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    {finish}

@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    {unconfigure}

@atexit.register
def _exit():
    {exit}
"""
OWN = "def test_own(benchmark):\n    benchmark(sum, range(99))\n"


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ("load", "SIGTERM"),
        ("load", "SIGINT"),
        ("configure", "SIGTERM"),
        ("finish", "SIGINT"),
        ("unconfigure", "SIGTERM"),
        ("exit", "SIGINT"),
    ],
)
def test_a_signal_outside_of_the_tests_ends_in_order(
    tmp_path: Path, moment: str, name: str
) -> None:
    times, code = {"SIGTERM": (1, 143), "SIGINT": (2, 2)}[name]
    moments = dict.fromkeys(("load", "configure", "finish", "unconfigure", "exit"), "pass")
    moments[moment] = "send()"
    (tmp_path / "at_a_moment.py").write_text(AT_A_MOMENT.format(**moments, name=name, times=times))
    (tmp_path / "test_own.py").write_text(OWN)
    words = ["-p", "ipubench", "-p", "at_a_moment", "--device=cpu", "--budget=0.05"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=str(tmp_path),
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    before = moment in ("load", "configure")
    assert ("1 passed" in ended.stdout) != before
    if before and times == 1:
        (line,) = ended.stderr.strip().splitlines()
        assert "nothing was measured" in line
