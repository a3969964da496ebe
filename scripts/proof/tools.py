"""The tools that compare two versions of a package: each returns its answer on one benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from ipubench.plugins.gate import pairs
from ipubench.plugins.processes.versions import find_versions
from ipubench.plugins.record.host_process import GIT
from scripts.proof.releases import FASTER, SAME, SLOWER, Release

ROOT = Path(__file__).resolve().parents[2]
#: The change of time that counts: the gate of each tool.
THRESHOLD = 0.05
OPEN, FAILED = "inconclusive", "failed"
TEST = "test_speed.py"
ASV = "pip:asv==0.6.5,virtualenv==20.31.2"
MOST_SECONDS = 540.0
ANSWERS = {"regressed": SLOWER, "improved": FASTER, "pass": SAME, "inconclusive": OPEN}


class Answer(NamedTuple):
    """What a tool found: a change, none, or no decision; and how long that took."""

    found: str
    #: How the speed has changed, + is faster, if the tool computes it.
    change: float = 0.0
    seconds: float = 0.0
    #: Why it failed.
    why: str = ""


def python_with(package: str, version: str) -> str:
    """Return an interpreter with this environment's packages and this version."""
    return find_versions(f"pip:{package}=={version}").python


def prepare(release: Release) -> None:
    """Make the environments that the tools use, which is not part of their time."""
    python_with(release.package, release.before)
    here = python_with(release.package, release.now)
    program = "from ipubench.plugins.processes.versions import find_versions as find; find({!r})"
    words = program.format(f"pip:{release.package}=={release.before}")
    ended = _run([here, "-c", words], Path.cwd())
    if ended.returncode:
        raise SystemExit(ended.stdout)


def ipubench(release: Release, folder: Path, options: Sequence[str]) -> Answer:
    """Ask ``--against=pip:PACKAGE==VERSION``."""
    python = python_with(release.package, release.now)
    against = f"--against=pip:{release.package}=={release.before}"
    words = ["-m", "pytest", "-p", "ipubench", TEST, against, f"--gate={THRESHOLD:.0%}", *options]
    ended = _run([python, *words], folder)
    lines = [
        line for one in folder.glob("results/*.jsonl") for line in one.read_text().splitlines()
    ]
    verdicts = [one["verdict"] for one in map(json.loads, lines) if one["type"] == "verdict"]
    if not verdicts or verdicts[-1]["kind"] not in ANSWERS:
        return Answer(FAILED, why=ended.stdout[-2000:])
    verdict = verdicts[-1]
    found = ANSWERS[verdict["kind"]]
    # A case passes that was faster in each pair when the time was over: whether it is, is open.
    if found == SAME and pairs.FASTER in verdict["reasons"]:
        found = OPEN
    return Answer(found, verdict["change"] or 0.0)


def pytest_benchmark(release: Release, folder: Path, options: Sequence[str]) -> Answer:
    """Save the version before, and compare; the same rule finds what has become faster."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", TEST]
    rule = f"mean:{THRESHOLD:.0%}"
    compared = ["--benchmark-compare=0001", f"--benchmark-compare-fail={rule}"]
    python = python_with(release.package, release.before)
    first = _run([python, *words, "--benchmark-save=before"], folder)
    python = python_with(release.package, release.now)
    ended = _run([python, *words, "--benchmark-save=now", *compared], folder)
    means = [
        json.loads(path.read_text())["benchmarks"][0]["stats"]["mean"]
        for path in sorted(folder.glob(".benchmarks/*/*.json"))
    ]
    if len(means) != 2:
        return Answer(FAILED, why=first.stdout[-1000:] + ended.stdout[-1000:])
    change = means[0] / means[1] - 1
    if ended.returncode:
        return Answer(SLOWER, change)
    return Answer(FASTER if means[1] < means[0] * (1 - THRESHOLD) else SAME, change)


def asv(release: Release, folder: Path, options: Sequence[str]) -> Answer:
    """Run ``asv continuous`` on a repository whose two commits require the two versions."""
    python = find_versions(ASV).python
    settings = {
        "version": 1,
        "project": "proof",
        "repo": ".",
        "branches": ["main"],
        "environment_type": "virtualenv",
        "pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"],
        "build_command": [],
        "install_command": ["in-dir={env_dir} python -m pip install -r {build_dir}/needs.txt"],
        "uninstall_command": ["return-code=any python -m pip uninstall -y " + release.package],
    }
    (folder / "asv.conf.json").write_text(json.dumps(settings))
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").write_text("")
    (folder / "benchmarks" / "speed.py").write_text(as_asv(release.test))
    for version, side in ((release.before, "before"), (release.now, "now")):
        needs = {"pandas": "numpy==1.26.4\n"}.get(release.package, "")
        (folder / "needs.txt").write_text(f"{needs}{release.package}=={version}\n")
        if side == "before":
            _git(folder, "init", "-q", "-b", "main")
        _git(folder, "add", "needs.txt")
        _git(folder, "commit", "-q", "-m", side)
    _run([python, "-m", "asv", "machine", "--yes"], folder)
    words = ["continuous", "-f", f"{1 + THRESHOLD}", "-s", "HEAD~1", "HEAD"]
    ended = _run([python, "-m", "asv", *words], folder)
    text = ended.stdout
    if "PERFORMANCE DECREASED" in text:
        return Answer(SLOWER)
    if "PERFORMANCE INCREASED" in text:
        return Answer(FASTER)
    return Answer(SAME) if "NOT SIGNIFICANTLY CHANGED" in text else Answer(FAILED, why=text[-2000:])


def as_asv(test: str) -> str:
    """Return a test as a benchmark of asv, which calls functions named ``time_``.

    asv also looks for benchmarks in each class of the module, and ends if one has an attribute that
    cannot be read. So the module has no other names.
    """
    name = test[test.index("def test_") + len("def test_") :].partition("(")[0]
    return f"""\
def benchmark(function, *arguments):
    function(*arguments)


names = {{}}
exec({test!r}, names)


def time_{name}():
    names["test_{name}"](benchmark)
"""


TOOLS: Dict[str, Callable[[Release, Path, Sequence[str]], Answer]] = {
    "ipubench": ipubench,
    "pytest-benchmark": pytest_benchmark,
    "asv": asv,
}


def ask(tool: str, release: Release, folder: Path, options: Sequence[str]) -> Answer:
    """Return a tool's answer, with its time; a folder of its own has the test."""
    folder.mkdir(parents=True)
    (folder / TEST).write_text(release.test)
    started = time.monotonic()
    answer = TOOLS[tool](release, folder, options)
    return answer._replace(seconds=round(time.monotonic() - started, 1))


def _git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=proof", "-c", "user.email=proof@example.com"]
    subprocess.run([*GIT, *identity, *words], cwd=str(folder), check=True)


def _run(command: List[str], folder: Path) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        return subprocess.run(
            command,
            cwd=str(folder),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 1, f"{error}")
