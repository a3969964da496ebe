"""Runs that are ended at any moment leave whole files, and can be continued to the same result."""

from __future__ import annotations

import json
import math
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
# What differs between two runs that measured the same.
PASSING = ("time", "spent", "memory", "memory_bytes", "timer")
# pytest-benchmark's counts of outliers among rounds that are equal but for the last digits.
OF_THE_LAST_DIGITS = ("outliers", "iqr_outliers", "stddev_outliers", "ld15iqr", "hd15iqr")


def crashing(project: Project) -> Dict[str, str]:
    """Put the plugin that ends runs into a project; return the environment that finds it."""
    (project.folder / "crash.py").write_text(CRASH)
    return {"PYTHONPATH": os.pathsep.join([str(project.folder), project.environment["PYTHONPATH"]])}


def differences(found: Any, expected: Any, where: str = "") -> List[str]:
    """Return where two values differ by more than the fake clock's sums of floats do."""
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = sorted({*found, *expected} - set(PASSING) - set(OF_THE_LAST_DIGITS))
        pairs = [(f"{where}.{key}", found.get(key), expected.get(key)) for key in keys]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = [(f"{where}[{i}]", *both) for i, both in enumerate(zip(found, expected))]
    elif isinstance(found, float) and isinstance(expected, float):
        same = math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
        return [] if same else [f"{where}: {found} is not {expected}"]
    else:
        return [] if found == expected else [f"{where}: {found} is not {expected}"]
    return [text for pair in pairs for text in differences(pair[1], pair[2], pair[0])]


def measured(project: Project) -> Dict[str, Any]:
    """Return what the journals' readers and users see in the end."""
    (journal,) = project.journals()
    results = SessionResults.of(read_lines(journal))
    return {
        "cases": list(results.benchmarks.values()),
        "outcomes": results.outcomes,
        "baseline": {one["fullname"]: one for one in project.baseline()["benchmarks"]},
    }


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
            assert differences(measured(project), expected) == [], where
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


@pytest.mark.parametrize("then", ["pass", "raise ValueError", "pytest.skip('no')"])
def test_a_case_that_catches_sigterm_is_interrupted(project: Project, then: str) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    caught = source.replace(
        'if config.trouble == "error":',
        'if "beta-generated" in str(meter.case) and "--resume" not in sys.argv:\n'
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        except BaseException:\n"
        f"            {then}\n"
        '    if config.trouble == "error":',
    )
    assert caught != source
    (project.folder / "bench_fake.py").write_text(f"{caught}\nimport sys\nimport pytest\n")
    words = ["-k", "beta or delta", "--junitxml=junit.xml"]
    outcome = project.run(*words).assert_code(143)
    outcome.line("interrupted with 1 of ")
    assert "FAILED" not in outcome.text
    (journal,) = project.journals()
    results = SessionResults.of(read_lines(journal))
    (interrupted,) = (nodeid for nodeid in results.selected if "beta-generated" in nodeid)
    assert set(results.outcomes.values()) == {"passed"}
    assert interrupted not in results.outcomes
    assert "beta-generated" not in (project.folder / "junit.xml").read_text()
    project.run(*words, "--resume").assert_code(0)
    results = SessionResults.of(read_lines(journal))
    assert results.outcomes == dict.fromkeys(results.selected, "passed")


def test_the_handler_belongs_to_sessions_that_measure(project: Project) -> None:
    (project.folder / "test_signal.py").write_text(
        "import signal, pytest\n"
        "def test_it(request):\n"
        "    from ipubench.plugins.run.interruption import Sigterm\n"
        "    assert isinstance(signal.getsignal(signal.SIGTERM), Sigterm)\n"
    )
    (project.folder / "ended.py").write_text(
        "import signal\n"
        "def pytest_unconfigure():\n"
        "    print('in the end', signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)\n"
        "pytest_unconfigure.trylast = True\n"
        "def pytest_collection_finish():\n"
        "    print('collected', signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)\n"
    )
    environment = {"PYTHONPATH": crashing(project)["PYTHONPATH"]}
    words = ["test_signal.py", "-p", "ended", "-s"]
    outcome = project.run(*words, env=environment).assert_code(0)
    outcome.line("collected False")
    outcome.line("in the end True")
    project.run(*words, "--collect-only", env=environment).line("collected True")


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


AT_AN_IMPORT = """
import os, signal, sys

class Watch:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "ipubench.plugins.run.journal":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Watch)
"""


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


@pytest.mark.parametrize("moment", [AT_AN_IMPORT, IN_THE_SESSION], ids=["import", "session"])
def test_ctrl_c_while_the_suite_is_loaded_is_one_line(tmp_path: Path, moment: str) -> None:
    (tmp_path / "at_a_moment.py").write_text(moment)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *WITHOUT_OTHERS, "-p", "at_a_moment", "-k", "dense"],
        cwd=str(ROOT),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.INTERRUPTED
    assert ended.stderr.split("\n") == [
        "",
        "interrupted while the suite was loaded: nothing was measured",
        "",
    ]
