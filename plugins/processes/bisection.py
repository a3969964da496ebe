"""``ipubench-bisect GOOD BAD -k CASE``: which commit made a case slower?

``git bisect run`` in a worktree of its own, so that the user's checkout stays as it is. Each commit
is measured with ``--against=git:GOOD``, by its own suite where it has one. It is bad where a case
regressed, good where all passed, and skipped where it cannot be measured or nothing could be
decided.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest

from ipubench.fixtures.case.masking import mask_output
from ipubench.fixtures.data.sources import for_other_folders
from ipubench.fixtures.machine import scratch
from ipubench.fixtures.machine.files import IMPORT_ROOT
from ipubench.fixtures.machine.scratch import ScratchError
from ipubench.plugins.processes import only_from, revision
from ipubench.plugins.processes.fresh import for_another_folder, known_reason
from ipubench.plugins.record.files import lines_in
from ipubench.plugins.record.host_process import git_says, outside_git
from ipubench.plugins.record.text import EXIT_USAGE, Parser, percent, percentage
from ipubench.plugins.record.verdict import EXIT_NOTHING_COMPARED, IMPROVED, PASS, REGRESSED
from ipubench.plugins.run.results import SessionResults

#: What git bisect run understands; 128 and above end it.
GOOD, BAD, SKIP, ABORT = 0, 1, 125, 128
# The last two: before pytest answered signals.
INTERRUPTED = (2, 130, 143, -signal.SIGINT, -signal.SIGTERM)
# Options of pytest that a step decides.
OF_A_STEP = ("--against", "--results-dir", "--report", "--baseline-save")
# Signals that end a program which was not started to outlive them, as nohup does it.
ENDING = (signal.SIGTERM, signal.SIGHUP)
# Between asking a measurement to end and killing it: it ends its own processes before.
GRACE_SECONDS = 30.0
# Run by git in the worktree, whose modules are those of another commit. One line: git shows it.
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from ipubench.plugins.processes.bisection import step; sys.exit(step(sys.argv[1:]))"
)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ipubench-bisect",
        description="Find the commit that made a case slower. Other words go to pytest.",
        epilog="Exit codes: 0, found; 4, the command line cannot be used; 6, not found.",
    )
    parser.add_argument("good", metavar="GOOD", help="a revision where the case was fast")
    parser.add_argument("bad", metavar="BAD", help="a later one where it is slow")
    parser.add_argument("-k", dest="case", required=True, metavar="CASE", help="as pytest's -k")
    parser.add_argument(
        "--gate",
        default="2%",
        type=percentage,
        metavar="PERCENT",
        help="what counts as slower (2%%)",
    )
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Bisect; return the exit code. A signal that ends it raises SystemExit."""
    parser = _parser()
    given, words = parser.parse_known_args(arguments)
    for option in {word.partition("=")[0] for word in words}.intersection(OF_A_STEP):
        parser.error(f"{option}: each step of the search has its own and keeps none; leave it out")
    with _answering(ENDING, _exit):
        return _search(given, words)


def _search(given: argparse.Namespace, words: Sequence[str]) -> int:
    root = Path.cwd()
    try:
        where = Path(revision.toplevel(given.good, root))
        good = revision.find_commit(given.good, given.good, root)
        bad = revision.find_commit(given.bad, given.bad, root)
        with scratch.folder("bisect") as folder:
            tree = folder / "worktree"
            try:
                revision.add(given.bad, where, tree, bad)
                project = tree / root.resolve().relative_to(where.resolve())
                asked = ["-k", given.case, f"--gate={given.gate:.6%}"]
                asked += for_another_folder(words, root)
                return _bisect(tree, [str(where), str(project), good, *asked], good, bad)
            finally:
                revision.remove(tree)
    except (pytest.UsageError, ScratchError) as error:
        print(mask_output(f"ipubench-bisect: {error}"), file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED[0]


@contextlib.contextmanager
def _answering(
    numbers: Sequence[int], answer: Callable[[int, Optional[FrameType]], None]
) -> Iterator[None]:
    """Answer signals in the block, but for those that this process was started to ignore."""
    before = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, answer)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


def _exit(number: int, frame: Optional[FrameType]) -> None:
    """End this program with all that it has begun, which a second signal must not cut short."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)
    sys.exit(128 + number)


@contextlib.contextmanager
def _started(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a session of its own, which has ended when the block is left.

    So Ctrl-C reaches this process alone, as SIGTERM may, and both end what was started.
    """
    with subprocess.Popen(words, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a program and its process group to end; kill after a while what is left.

    A step ends after git and its shell, and closes the output that it has from them.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left, or a stranger
        try:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _bisect(tree: Path, words: Sequence[str], good: str, bad: str) -> int:
    """Bisect in a worktree at BAD, once BAD has been seen to be slower; ``words`` of a step."""
    program = [sys.executable, "-c", PROGRAM, str(IMPORT_ROOT), *words]
    # Not the user's own checkout, if it is a hook or an alias of git that runs us.
    there: Dict[str, Any] = {"cwd": str(tree), "env": for_other_folders(outside_git())}
    with _started(program, **there) as measuring:
        first = measuring.wait()
    if first >= ABORT:
        return INTERRUPTED[0]
    if first != BAD:
        how = "is not slower than" if first == GOOD else "could not be compared with"
        print(f"nothing to search for: {bad[:12]} {how} {good[:12]} in this measurement")
        return EXIT_NOTHING_COMPARED
    git = ["git", "-c", "core.hooksPath=/dev/null", "bisect"]
    started = subprocess.run(
        [*git, "start", bad, good], stdout=subprocess.PIPE, check=False, **there
    )
    print(started.stdout.decode(errors="replace").strip(), flush=True)
    if started.returncode:
        return EXIT_USAGE
    with _started([*git, "run", *program], stdout=subprocess.PIPE, **there) as run:
        assert run.stdout is not None
        for line in run.stdout:
            text = line.decode(errors="replace")
            if not text.startswith("running "):  # our own program, word by word
                print(text, end="", flush=True)
        code = run.wait()
    return 0 if code == 0 else EXIT_NOTHING_COMPARED


def step(arguments: Sequence[str]) -> int:
    """Measure the commit that a worktree has; return what it is for git bisect run.

    ``arguments``: the user's checkout, the project's folder in the worktree, the good commit,
    and words for pytest. What goes wrong skips the commit, of which nothing is known then.
    """
    here, project, good, *words = arguments
    try:
        # git bisect leaves them as the commit before had them.
        revision.update_submodules("HEAD", Path.cwd())
        # What ends the search reaches the measurement too, whose end this step waits for.
        with _answering([signal.SIGTERM], lambda *_: None):
            found, why = _verdict(Path(here), Path(project), good, words)
    except Exception as error:
        found, why = SKIP, str(error)
    if found != ABORT:
        what = {GOOD: "good", BAD: "bad", SKIP: "skipped"}[found]
        head = git_says(Path.cwd(), "log", "-1", "--format=%h %s") or b""
        print(f"{head.decode(errors='replace').strip()}: {what}: {why}", flush=True)
    return found


def _verdict(here: Path, project: Path, good: str, words: Sequence[str]) -> Tuple[int, str]:
    """Measure a commit; return what it is for git bisect run, and why."""
    with scratch.folder("bisect-step") as results:
        code, output = _measure(here, project, good, words, results)
        verdicts = SessionResults.of(lines_in(results)).verdicts
    if code in INTERRUPTED:
        return ABORT, ""
    found = judged(verdicts, code)
    why = _words(verdicts, code)
    said = [line for line in output.splitlines() if line.strip()]
    if found == SKIP and code and said:
        why += f": {known_reason(said) or said[-1].strip()}"
    return found, why


def _measure(
    here: Path, project: Path, good: str, words: Sequence[str], results: Path
) -> Tuple[int, str]:
    """Run a commit's cases against those of the good one; return the exit code and the output."""
    command = [
        *(sys.executable, str(Path(only_from.__file__).resolve()), str(project)),
        *([] if revision.has_suite(project) else [f"{only_from.INSTEAD_OF}{here}"]),
        # With it exit code 2 means Ctrl-C alone.
        *("-q", "--continue-on-collection-errors"),
        f"--rootdir={project}",
        # What failed at another commit, or in the user's own runs, must not change what runs here.
        *("-o", f"cache_dir={results / 'cache'}"),
        *(f"--against=git:{good}", f"--results-dir={results}", *words),
    ]
    path = os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")]))
    # No pipe, whose end would wait for a server that a case has left behind.
    with (results / "output").open("w+b") as output:
        code = subprocess.run(
            command,
            cwd=str(project),
            env={**outside_git(), "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        output.seek(0)
        return code, output.read().decode(errors="replace")


def judged(verdicts: Dict[str, Dict[str, Any]], code: int) -> int:
    """Return what verdicts, and pytest's exit code, mean for git bisect run.

    Of a case that failed the exit code alone tells.
    """
    kinds = {verdict["kind"] for verdict in verdicts.values()}
    if REGRESSED in kinds:
        return BAD
    return GOOD if kinds and kinds <= {PASS, IMPROVED} and code == 0 else SKIP


def _words(verdicts: Dict[str, Dict[str, Any]], code: int) -> str:
    """Return the verdicts in one line."""
    parts: List[str] = []
    for verdict in verdicts.values():
        text = str(verdict["kind"])
        if verdict.get("change") is not None:
            text += f" {percent(verdict['change'], sign=True)}"
        if verdict.get("reasons"):
            text += f" ({verdict['reasons'][0]})"
        parts.append(text)
    if not parts:
        return f"no verdict (exit code {code})"
    failed = code and judged(verdicts, 0) == GOOD
    return ", ".join(parts) + (f"; another case failed (exit code {code})" if failed else "")


if __name__ == "__main__":
    sys.exit(main())
