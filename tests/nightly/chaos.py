"""End runs at random moments and check what was lost: `make chaos`.

    python -m tests.nightly.chaos [--trials=60] [--seed=N] [KIND ...]

Each trial starts a run of the suite in a separate folder, injects one of the faults after a random
time, and resumes the run with --resume. These are losses: a case that the run showed as measured
but did not write to its journal; a damaged file; a run that hangs or ends in a traceback; a process
that is still running; a temporary folder that the next run does not remove; and a resumed run that
fails. The exit code is 1 if there was a loss.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from ipubench.fixtures.machine import scratch
from ipubench.plugins.baseline.format import BaselineError
from ipubench.plugins.baseline.store import load_all
from ipubench.plugins.record.files import json_lines
from ipubench.plugins.record.text import Parser
from tests.support.fleet import as_host
from tests.support.harness import QUIETLY, ROOT, Project
from tests.support.instances import WORDS, with_instances

VARIABLE = "IPUBENCH_CHAOS"
#: Seconds that a run and then its processes may take to end after the request.
END_SECONDS = 60.0
ORPHAN_SECONDS = 15.0
#: A case's line with its throughput; a failed case has a word there.
MEASURED = re.compile(r"\[\d+/\d+\] \w+\[(\S+)\] [\d,.]+ \S+/s ")
#: A place in the suite's code in a traceback.
OURS = re.compile(r'File "[^"]*(/conftest\.py|/ipubench/[^"]*)"')
FAKE = ("bench_fake.py", "--device=fake", "--budget=4", "-k", "bs8 or beta or delta")
HOSTS = [f"--tx=popen//id={name}//chdir=hosts/{name}" for name in "ab"]
SERVING = (
    f"{ROOT}/bench_inference/bench_tensorflow_serving.py",
    *("-k", "resnet50_infer_bs16-generated", "--device=cpu", "--steps=3"),
    *("--set=model_name=cifar_resnet8", "--set=dataset=cifar10", "--set=clients=2"),
    *("--set=fused_preprocessing=no", f"--rootdir={ROOT}"),
)


class Kind(NamedTuple):
    """One kind of run."""

    words: Sequence[str]
    prepare: Callable[[Project], object] = lambda project: None


def _other_python(project: Project) -> None:
    path = project.folder / "other-python"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


KINDS: Dict[str, Kind] = {
    "plain": Kind(FAKE),
    "workers": Kind((*FAKE, "-n", "2")),
    "hosts": Kind((*FAKE, *HOSTS), lambda project: [as_host(project, name) for name in "ab"]),
    "saving": Kind((*FAKE, "--baseline-save=main", "--processes=2")),
    "against": Kind((*FAKE, "--against=./other-python"), _other_python),
    "instances": Kind((*WORDS, "--set=batch_size=1,2,3", "--steps=3"), with_instances),
    "serving": Kind(SERVING),
}


def _signal(number: int, group: bool = False) -> Callable[[subprocess.Popen[bytes], Path], None]:
    def send(process: subprocess.Popen[bytes], folder: Path) -> None:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(process.pid, number)

    return send


FAULTS: Dict[str, Callable[[subprocess.Popen[bytes], Path], None]] = {
    "SIGKILL": _signal(signal.SIGKILL),
    "SIGTERM": _signal(signal.SIGTERM),
    "Ctrl-C": _signal(signal.SIGINT, group=True),
}


class Trial:
    """One interrupted run and its losses."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = KINDS[kind]
        self.project = Project(folder)
        self.kind.prepare(self.project)
        (folder / "temporary").mkdir()
        self.mark = str(folder)  # separate, so two of these programs can run at once
        self.environment = {
            **self.project.environment,
            "TMPDIR": str(folder / "temporary"),
            "COLUMNS": "120",
            VARIABLE: self.mark,
        }

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the run in a new process group, as a shell does."""
        words = [*QUIETLY, *self.kind.words, f"--results-dir={self.project.folder / 'results'}"]
        with self._output_file.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "pytest", *words, *more],
                cwd=str(self.project.folder),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def losses(self, fault: str, seconds: float) -> Iterator[str]:
        """Run, inject the fault after some seconds, resume; yield the losses."""
        process = self.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        try:
            FAULTS[fault](process, self.project.folder)
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            yield "the run did not end"
        shown = set(MEASURED.findall(self.output))
        if self._has_traceback(fault):
            yield f"a traceback:\n{self.output[-1500:]}"
        yield from self._files(shown)
        yield from self._orphans()
        (self.project.folder / "temporary").mkdir(exist_ok=True)
        resumed = self.start("--resume")
        try:
            code = resumed.wait(10 * END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(resumed.pid, signal.SIGKILL)
            code = -1
        if code:
            yield f"the resumed run ended with {code}:\n{self.output[-1500:]}"
        yield from self._orphans()
        left = sorted(path.name for path in self._left())
        if left:
            yield f"left in the temporary folder: {', '.join(left)}"

    def _has_traceback(self, fault: str) -> bool:
        """Return whether the run ended in a traceback of ours.

        Until our code is loaded, Python handles Ctrl-C, and the broken pipe of a worker that was
        starting when its controller was killed.
        """
        late = fault not in ("Ctrl-C", "SIGKILL") or OURS.search(self.output)
        shown = "Traceback (most rec" in self.output or re.search(
            "^E   ", self.output, re.MULTILINE
        )
        return "INTERNALERROR" in self.output or bool(late and shown)

    @property
    def _output_file(self) -> Path:
        return self.project.folder / "output"

    @property
    def output(self) -> str:
        """The output of the latest run."""
        return self._output_file.read_text(encoding="utf-8", errors="replace")

    def _files(self, shown: Set[str]) -> Iterator[str]:
        kept = set()
        for journal in self.project.journals():
            for text in journal.read_text(encoding="utf-8").split("\n")[:-1]:
                try:
                    json.loads(text)
                except ValueError:
                    yield f"{journal.name} has a damaged line"
            lines = json_lines(journal)
            kept |= {
                line["benchmark"]["name"].partition("[")[2][:-1]
                for line in lines
                if line["type"] == "case"
            }
        if shown - kept:
            yield f"shown and not in the journal: {', '.join(sorted(shown - kept))}"
        for path in (self.project.folder / "baselines").glob("*.json"):
            try:
                load_all(path)
            except BaselineError as error:
                yield str(error)

    def _orphans(self) -> Iterator[str]:
        end = time.monotonic() + ORPHAN_SECONDS
        while time.monotonic() < end:
            if not _processes(self.mark):
                return
            time.sleep(0.1)
        for pid in _processes(self.mark):
            yield f"still there: {_words(pid)}"
            os.kill(pid, signal.SIGKILL)

    def _left(self) -> List[Path]:
        """Return what the next run would not remove."""
        scratch.NEW_SECONDS = -1.0
        # Ignores files of other runs on this machine.
        scratch.SHARED_MEMORY = self.project.folder / "temporary"
        tempfile.tempdir = str(self.project.folder / "temporary")
        scratch.remove_leftovers()
        tempfile.tempdir = None
        return list((self.project.folder / "temporary").glob("*ipubench*"))


def _processes(mark: str) -> List[int]:
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200]
    except OSError:
        return str(pid)


def main(words: Optional[Sequence[str]] = None) -> int:
    """Run the trials that the command line asks for; return the exit code."""
    parser = Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=60, help="of all kinds together (60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of chance (the time)")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (all)")
    given = parser.parse_args(words)
    unknown = set(given.kinds) - set(KINDS)
    if unknown:
        parser.error(f"no kind {sorted(unknown)[0]!r}; there are {', '.join(KINDS)}")
    # A shell's background job ignores Ctrl-C, which the runs would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(given.seed)
    kinds = given.kinds or list(KINDS)
    print(f"seed {given.seed}", flush=True)
    trials: Counter[str] = collections.Counter()
    lost: Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        lengths = {}
        for kind in kinds:
            lengths[kind] = _length(kind, Path(place))
            print(f"{kind}: a whole run takes {lengths[kind]:.1f} s", flush=True)
        for number in range(given.trials):
            kind, fault = kinds[number % len(kinds)], chance.choice(list(FAULTS))
            after = chance.uniform(0, lengths[kind])
            folder = Path(place) / str(number)
            folder.mkdir()
            found = list(Trial(kind, folder).losses(fault, after))
            shutil.rmtree(folder, ignore_errors=True)
            trials[kind] += 1
            lost[kind] += bool(found)
            summary = f"{number + 1}. {kind}, {fault} after {after:.2f} s"
            print(f"{summary}: {len(found)} lost", flush=True)
            for loss in found:
                print(f"  {loss}", flush=True)
    for kind in kinds:
        print(f"{kind}: {trials[kind]} trials, {lost[kind]} with a loss")
    print(f"{sum(trials.values())} trials, {sum(lost.values())} with a loss")
    return 1 if sum(lost.values()) else 0


def _length(kind: str, place: Path) -> float:
    """Return the seconds of an undisturbed run. Raises RuntimeError if it fails."""
    folder = place / f"whole-{kind}"
    folder.mkdir()
    trial = Trial(kind, folder)
    begun = time.monotonic()
    if trial.start().wait():
        raise RuntimeError(f"{kind}: a whole run fails:\n{trial.output[-3000:]}")
    shutil.rmtree(folder, ignore_errors=True)
    return time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
