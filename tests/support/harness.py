"""Run the suite as a user does, in a separate process and project."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Mapping, Optional
from unittest import mock

import pytest

from ipubench.plugins.run.journal import journals
from tests.support.process_starter import NO_SUITE, Files, ask, number_from, small_program

ROOT = Path(__file__).resolve().parents[2]
# Plugins of other packages, whose imports take longer than the suite's and pytest's, and one of
# pytest's, which collects garbage five times at the end.
WITHOUT_OTHERS = tuple(
    word
    for name in ("hypothesispytest", "anyio", "platformdirs", "unraisableexception")
    for word in ("-p", f"no:{name}")
)
SECONDS = 300  # until SIGALRM ends the run
QUIETLY = ("-p", "no:cacheprovider", *WITHOUT_OTHERS)


@dataclass(frozen=True)
class Outcome:
    """The result of a run of the suite."""

    code: int
    text: str

    @property
    def lines(self) -> List[str]:
        return self.text.splitlines()

    def line(self, part: str) -> str:
        """Return the one line that contains ``part``."""
        found = [line for line in self.lines if part in line]
        assert found, f"no line has {part!r} in:\n{self.text}"
        return found[0]

    @property
    def table(self) -> List[str]:
        """The lines of the table's cases."""
        start = self.lines.index(self.line("case  "))
        return [line for line in self.lines[start:] if re.match("  [^ ]", line)]

    def assert_code(self, code: int) -> Outcome:
        """Fail with the whole output if the exit code differs."""
        assert self.code == code, f"exit code {self.code}, not {code}:\n{self.text}"
        return self


class SuiteServer:
    """The processes that start runs of the suite: tests/support/suite_server.py."""

    #: Shared by all tests of a run (tests/support/plugin.py); otherwise private to this process.
    folder: ClassVar[Optional[Path]] = None
    _addresses: ClassVar[Dict[str, str]] = {}
    _kept: ClassVar[List[Any]] = []

    @classmethod
    def run(
        cls, folder: Path, environment: Mapping[str, str], *words: str, framework: str = ""
    ) -> Outcome:
        """Run ``python WORDS`` in a folder, with a framework imported or none."""
        return Started(folder, environment, *words, framework=framework).wait()

    @classmethod
    def python(cls, path: Path, framework: str = "") -> None:
        """Write a program that replaces Python and passes its arguments to the server.

        It supports what a run's own processes need: ``-m`` and ``-c``.
        """
        words = shlex.join(small_program(cls.address(framework)))
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)

    @classmethod
    def files(cls, framework: str) -> Files:
        """Return the folder in which the server of a framework publishes its address."""
        if cls.folder is None:
            cls.folder = Path(tempfile.mkdtemp(prefix="ipubench-tests-"))
            atexit.register(shutil.rmtree, str(cls.folder), ignore_errors=True)
        return Files(cls.folder, framework)

    @classmethod
    def address(cls, framework: str = "") -> str:
        """Return the address of the starter with a framework, or without one.

        The first test that needs it starts the server, in any worker.
        """
        if framework not in cls._addresses:
            files = cls.files(framework)
            with files.lock.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not files.users.exists():
                    os.mkfifo(str(files.users))
                # Open until this process ends.
                cls._kept.append(os.open(str(files.users), os.O_RDWR))
                if not files.address.exists():
                    files.address.write_text(cls._start(framework))
                cls._addresses[framework] = files.address.read_text()
        return cls._addresses[framework]

    @classmethod
    def _start(cls, framework: str) -> str:
        """Start a server; return its address after its imports."""
        alone = _cleaned(os.environ)
        alone.pop("PYTHONPATH", None)  # each request sends its own
        program = str(ROOT / "tests/support/suite_server.py")
        server = subprocess.Popen(
            [sys.executable, program, framework, str(cls.folder), *QUIETLY],
            env=alone,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        cls._kept.append(server)
        assert server.stdout
        address = server.stdout.readline().strip()
        assert address, "tests/support/suite_server.py did not start"
        return address


class Started:
    """A run in the background, in a process that the test may signal.

    ``plain``: it starts real Python processes, which notice when their parent ends.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *words: str,
        framework: str = "",
        plain: bool = False,
    ) -> None:
        """Start ``python WORDS``."""
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  wait closes it
        request = {
            "words": list(words),
            "folder": str(folder),
            "environment": _cleaned(environment),
            "parent": os.getpid(),
            "seconds": SECONDS,
            "plain": plain,
        }
        with open(os.devnull) as nothing:
            output = self._output.fileno()
            files = (nothing.fileno(), output, output)
            self._connection, self.pid = ask(SuiteServer.address(framework), request, files)

    def is_running(self) -> bool:
        """Return whether the run has not ended."""
        return not select.select([self._connection], [], [], 0)[0]

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> Outcome:
        """Wait, and return the exit status as ``subprocess`` has it."""
        status = number_from(self._connection)
        self._connection.close()
        self._output.seek(0)
        text = self._output.read().decode(errors="replace")
        self._output.close()
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return Outcome(code, text)


def run_pytest(
    folder: Path, environment: Mapping[str, str], *words: str, framework: str = ""
) -> Outcome:
    """Run ``pytest WORDS`` in a folder, in a separate process, with a framework if asked."""
    return start_pytest(folder, environment, *words, framework=framework, plain=False).wait()


def start_pytest(
    folder: Path,
    environment: Mapping[str, str],
    *words: str,
    framework: str = "",
    plain: bool = True,
) -> Started:
    """Start ``pytest WORDS`` like :func:`run_pytest`, without waiting for its end."""
    words = ("-m", "pytest", *QUIETLY, *words)
    return Started(folder, environment, *words, framework=framework, plain=plain)


def run_command(folder: Path, environment: Mapping[str, str], module: str, *words: str) -> Outcome:
    """Run ``python -m MODULE WORDS``, a command of the suite, in a separate process."""
    return SuiteServer.run(folder, environment, "-m", module, *words)


def run_here(
    folder: Path, environment: Mapping[str, str], main: Callable[[List[str]], int], *words: str
) -> Outcome:
    """Run a command of the suite in this process, which takes a fiftieth of the time.

    For a command that starts Python, use :func:`run_command`.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(os.chdir, os.getcwd())
        os.chdir(str(folder))
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(list(words))
            except SystemExit as end:  # from argparse
                code = int(end.code or 0)
        for file in (out, err):
            file.seek(0)
        return Outcome(code, out.read() + err.read())


def listed(folder: Path, environment: Mapping[str, str], *words: str) -> Outcome:
    """Run ``pytest WORDS``, which calls no test, in this process."""
    before, path = dict(sys.modules), list(sys.path)
    words = (*QUIETLY, "-p", "no:faulthandler", *words)
    try:
        sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        outcome = run_here(folder, environment, pytest.main, *words)
    finally:
        sys.path[:] = path
        for name in sys.modules.keys() - before.keys() if folder != ROOT else ():
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{folder}{os.sep}"):
                del sys.modules[name]  # another project has its own
        sys.modules.update(before)
    assert "Traceback" not in outcome.text and "INTERNALERROR" not in outcome.text, outcome.text
    return outcome


def refused(folder: Path, environment: Mapping[str, str], *words: str) -> Outcome:
    """Return the end of ``pytest WORDS``, which a usage error must end, without a process."""
    return listed(folder, environment, *words).assert_code(4)


def run_elsewhere(folder: Path, environment: Mapping[str, str], *words: str) -> Outcome:
    """Run ``python WORDS`` with the suite of another checkout, imported by that process."""
    return SuiteServer.run(folder, environment, *words, framework=NO_SUITE)


def run_program(
    program: str, environment: Mapping[str, str], first: str, *words: str, framework: str = ""
) -> Outcome:
    """Run in a process a program that passes its arguments after the ``first`` to pytest.main."""
    words = ("-c", program, first, *QUIETLY, *words)
    return SuiteServer.run(ROOT, environment, *words, framework=framework)


def run_code(program: str, *words: str, framework: str = "") -> Outcome:
    """Run ``python -c PROGRAM WORDS`` in this checkout, with a framework imported if asked."""
    return SuiteServer.run(ROOT, os.environ, "-c", program, *words, framework=framework)


def _cleaned(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return an environment without the variables of the tests that no run should have."""
    return {name: value for name, value in environment.items() if name != "PYTEST_ADDOPTS"}


@contextlib.contextmanager
def holding(device: str, environment: Mapping[str, str]) -> Iterator[int]:
    """Have another process hold a device meanwhile; yield its process number."""
    program = "import sys; from ipubench.fixtures.devices.lease import lease\n"
    program += f"with lease([{device!r}], 1): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=str(ROOT),
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        yield holder.pid
    finally:
        holder.communicate()


class Project:
    """A folder with the suite's plugins and the cases of tests/support/fake_cases.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "tests" / "support" / "fake_conftest.py", folder / "conftest.py")
        shutil.copy(ROOT / "pytest.ini", folder)
        shutil.copy(ROOT / "tests" / "support" / "fake_cases.py", folder / "bench_fake.py")
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "IPUBENCH_LEASE_DIR": str(folder / "leases"),
            "IPUBENCH_CACHE_DIR": str(folder / "cache"),
            "COLUMNS": "80",
            # Tests change a file twice a second, which compiled files would not notice. The suite's
            # own compiled files are still used.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for name in ("PYTEST_ADDOPTS", "DATASETS_DIR", "CI"):
            self.environment.pop(name, None)

    def run(self, *words: str, env: Optional[Mapping[str, str]] = None) -> Outcome:
        """Run ``pytest bench_fake.py --device=fake WORDS`` in the project."""
        environment = {**self.environment, **(env or {})}
        return run_pytest(self.folder, environment, "bench_fake.py", "--device=fake", *words)

    def refused(self, *words: str, env: Optional[Mapping[str, str]] = None) -> Outcome:
        """Return the end of a run that a usage error ends, without a process."""
        return self.listed(*words, env=env).assert_code(4)

    def listed(self, *words: str, env: Optional[Mapping[str, str]] = None) -> Outcome:
        """Return the end of a run that calls no test, without a process."""
        environment = {**self.environment, **(env or {})}
        return listed(self.folder, environment, "bench_fake.py", "--device=fake", *words)

    def add_to_conftest(self, text: str) -> None:
        """Append code to the project's conftest.py."""
        with (self.folder / "conftest.py").open("a", encoding="utf-8") as file:
            file.write(f"\n\n{text}")

    def journals(self) -> List[Path]:
        """Return the journals, oldest first."""
        return journals(self.folder / "results")

    def journal(self) -> List[Dict[str, Any]]:
        """Return the lines of the latest journal."""
        text = self.journals()[-1].read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def records(self) -> Dict[str, Dict[str, Any]]:
        """Return identifier -> record of the latest run."""
        return records_in(self.folder / "results")

    def baseline(self, name: str = "main") -> Dict[str, Any]:
        """Return a stored baseline."""
        path = self.folder / "baselines" / f"{name}.json"
        loaded: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return loaded


def records_in(results: Path) -> Dict[str, Dict[str, Any]]:
    """Return identifier -> record of the latest run that left its journal in a folder."""
    lines = map(json.loads, journals(results)[-1].read_text(encoding="utf-8").splitlines())
    found = [
        line["benchmark"]["extra_info"]["ipubench"] for line in lines if line["type"] == "case"
    ]
    return {record["name"]: record for record in found}


def counting_rounds(record: Mapping[str, Any]) -> int:
    """Return the number of rounds that count: others may have disturbed some."""
    contention = record["contention"]
    return int(contention["clean"] if contention.get("enough") else record["rounds"]["count"])
