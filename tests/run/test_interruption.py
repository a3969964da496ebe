"""Runs that are ended at any moment leave whole files, and can be continued to the same result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.record.files import read_lines
from ipubench.plugins.record.record import record_of
from ipubench.plugins.run.results import SessionResults
from tests.support.harness import ROOT, WITHOUT_OTHERS, Outcome, Project, start_pytest

# Many runs of the suite; the older Python leaves them out (make test38).
pytestmark = pytest.mark.slow

# Counts what a run does to files of results and baselines, and ends it at one of these moments.
CRASH = """
import os, sys

state = {"count": 0}

def watch(event, arguments):
    if event not in ("open", "os.rename", "os.remove", "os.mkdir"):
        return
    if not any(word in str(arguments[0]) for word in ("results", "baselines")):
        return
    state["count"] += 1
    if state["count"] == int(os.environ.get("CRASH_AT", "0")):
        os.kill(os.getpid(), int(os.environ["CRASH_SIGNAL"]))

def pytest_unconfigure():
    print("moments:", state["count"])

sys.addaudithook(watch)
"""
# With this budget no number of calls hangs on the last digit of the fake clock.
WORDS = ["--budget=4.03", "-k", "bs8 or beta or delta", "-p", "crash"]
WORDS += ["--baseline-save=main", "--processes=1"]
EXIT_CODES = {
    signal.SIGKILL: {-signal.SIGKILL},
    signal.SIGTERM: {143},
    # While the session ends, nobody catches Ctrl-C.
    signal.SIGINT: {2, -signal.SIGINT},
}
MOMENTS_EACH = 2


def crashing(project: Project) -> Dict[str, str]:
    """Put the plugin that ends runs into a project; return the environment that finds it."""
    (project.folder / "crash.py").write_text(CRASH)
    return {"PYTHONPATH": os.pathsep.join([str(project.folder), project.environment["PYTHONPATH"]])}


def measured(project: Project) -> Dict[str, Any]:
    """Return what the journals' readers and users see in the end."""
    (journal,) = project.journals()
    results = SessionResults.of(read_lines(journal))
    stored = {one["fullname"] for one in project.baseline()["benchmarks"]}
    assert stored == set(results.benchmarks)
    rates = {
        name: pytest.approx(record_of(one)["throughput"]["median"])
        for name, one in results.benchmarks.items()
    }
    return {"rates": rates, "outcomes": results.outcomes}


def table(outcome: Outcome) -> List[str]:
    """Return the rows of the table."""
    return [line for line in outcome.lines if re.match(r"  (alpha|beta|delta)", line)]


def empty(project: Project) -> None:
    """Remove what the runs of a project left."""
    for folder in ("results", "baselines"):
        for path in (project.folder / folder).glob("*"):
            path.unlink()


def test_a_run_that_is_ended_at_any_moment_can_be_finished(project: Project) -> None:
    environment = crashing(project)
    whole = project.run(*WORDS, env=environment).assert_code(0)
    expected = measured(project)
    count = int(whole.line("moments:").split()[1])
    assert count > MOMENTS_EACH
    for offset, (number, codes) in enumerate(EXIT_CODES.items()):
        for part in range(MOMENTS_EACH):
            empty(project)
            moment = 1 + (count - 1) * (3 * part + offset) // (3 * MOMENTS_EACH - 1)
            crash = {"CRASH_AT": str(moment), "CRASH_SIGNAL": str(int(number))}
            ended = project.run(*WORDS, env={**environment, **crash})
            where = f"{number.name} at moment {moment} of {count}"
            assert ended.code in codes, f"{where}: exit code {ended.code}\n{ended.text}"
            check_files(project, number, where)
            finished = project.run(*WORDS, "--resume", env=environment)
            assert finished.code == 0, f"{where}: {finished.text}"
            latest = project.journals()[-1]
            for journal in project.journals()[:-1]:  # ended before its first line
                assert read_lines(journal) == [], where
                journal.unlink()
            assert project.journals() == [latest]
            assert measured(project) == expected, where
            assert table(finished) == table(whole), where


def check_files(project: Project, number: int, where: str) -> None:
    """All lines of a journal but a last one without its end are JSON; a baseline is whole."""
    for journal in project.journals():
        for text in journal.read_text().split("\n")[:-1]:
            json.loads(text)
    names = [path.name for path in (project.folder / "baselines").glob("*.json")]
    if "main.json" in names:
        assert len(project.baseline()["benchmarks"]) == 5, where
    if number != signal.SIGKILL:
        left = [path.name for path in (project.folder / "baselines").glob(".main.json.*")]
        assert [name for name in left if not name.endswith(".lock")] == [], where


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
        "\nfrom ipubench.fixtures.devices.fake import FakeDevice\n"
        "FakeDevice.release = lambda self: print('the device was released')\n"
    )
    (project.folder / "bench_fake.py").write_text(terminated)
    outcome = project.run("-k", "beta", "-s").assert_code(143)
    outcome.line("the device was released")
    outcome.line("  beta-synthetic ")
    outcome.line("interrupted with 1 of 2 cases done")
    assert "Traceback" not in outcome.text


def is_running(pid: int) -> bool:
    """Tell whether a process is there and not only waits for its burial."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
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
    assert outcome.code in EXIT_CODES[signal.Signals(number)], outcome.text
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)
    if number != signal.SIGKILL:
        outcome.line("interrupted with 0 of 1 cases done")


def test_sigterm_at_the_end_of_a_whole_run_keeps_what_it_writes(project: Project) -> None:
    (project.folder / "ending.py").write_text(
        "import os, signal\ndef pytest_sessionfinish():\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    environment = {"PYTHONPATH": crashing(project)["PYTHONPATH"]}
    words = ["-k", "beta", "--baseline-save=main", "--processes=1", "-p", "ending"]
    outcome = project.run(*words, env=environment).assert_code(143)
    outcome.line("baseline with 2 cases written to")
    assert len(project.baseline()["benchmarks"]) == 2
    assert "interrupted" not in outcome.text


# The last that is registered is configured first: before conftest.py.
IN_THE_SESSION = """
import os, signal, pytest

class Early:
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self):
        os.kill(os.getpid(), signal.SIGINT)

@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    config.pluginmanager.register(Early())
"""


def test_ctrl_c_while_the_suite_is_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "at_a_moment.py").write_text(IN_THE_SESSION)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *WITHOUT_OTHERS, "-p", "at_a_moment", "-k", "dense"],
        cwd=str(ROOT),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.INTERRUPTED
    assert len(ended.stderr.strip().splitlines()) == 1
