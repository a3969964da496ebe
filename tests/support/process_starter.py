"""Starts a run's own processes without their imports, which are most of what these cost.

A run starts fresh processes (``python -m pytest ...``) and workers of pytest-xdist (``python -c``).
In a run of the suite server ``subprocess.Popen`` starts this file instead, a small program. It
hands its words, environment and files to the starter, a process that has imported what every run
imports. The starter forks, and the fork goes on as the wanted process. The small program stands
for it: a child of the run, it passes signals on, and ends as the wanted process ends.
A supervisor of the run (fixtures/machine/supervisor.py) and the launcher of its instances
(fixtures/instances/processes.py, or tests/doubles/mpirun.py) remain processes of their own, and
what they start is started so.
"""

from __future__ import annotations

import array
import marshal
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the small program imports no more than it needs
    from pathlib import Path
    from typing import Any, Dict, Sequence, Tuple

#: Names the server of runs in another checkout, in place of a framework.
NO_SUITE = "no-suite"
#: Programs of a run that start others, and import no more than the standard library.
PARENTS = ("supervisor.py", "processes.py", "mpirun.py")
FILES = (0, 1, 2)
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LENGTH = 4  # bytes of a number between the two


class Files:
    """What the users of a server and the server itself find in a folder."""

    def __init__(self, folder: Path, framework: str) -> None:
        name = framework or "suite"
        #: A pipe that each user has open.
        self.users = folder / f"{name}.users"
        self.lock = folder / f"{name}.lock"
        self.address = folder / f"{name}.address"
        #: Lines of a process and one started for it, whose parent the kernel calls another.
        self.links = folder / f"{name}.links"


def by_starter(address: str, words: Any) -> Any:
    """Return the command that has the starter do what ``words`` would; others as they are."""
    if not isinstance(words, (list, tuple)):
        return words
    if words[0] != sys.executable:
        return words
    wanted = [word for word in words[1:] if word not in ("-u", "-B")]
    if wanted[0] == "-I" and os.path.basename(wanted[1]) in PARENTS:
        return [*small_program(address), *wanted[1:]]
    if wanted[:2] != ["-m", "pytest"] and wanted[:1] != ["-c"] and not _is_suites(wanted[0]):
        return words
    return [*small_program(address), *wanted]


def small_program(address: str) -> Sequence[str]:
    """Return the words that stand for Python: what follows them is run by the starter."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), address]


def use_starter(address: str) -> None:
    """Have ``subprocess.Popen`` use the starter from now on, in this process."""
    import subprocess

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, args: Any, *more: Any, **named: Any) -> None:
            super().__init__(by_starter(address, args), *more, **named)

    patched: Any = subprocess
    patched.Popen = Popen


def be_parent(address: str, words: Sequence[str]) -> None:
    """Be a program of the run whose children the starter starts."""
    import runpy

    use_starter(address)
    sys.argv[:] = words
    runpy.run_path(words[0], run_name="__main__")


def _is_suites(program: str) -> bool:
    """Tell whether a program is the one that runs a checkout's suite and no other."""
    return os.path.basename(program) == "guarded_pytest.py"


def stand_for(address: str, words: Sequence[str]) -> None:
    """In the small program: have the starter run ``words``, and end as they do."""
    request = {
        "words": list(words),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "parent": os.getppid(),
    }
    connection, process = ask(address, request, FILES)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(process, number))
    status = number_from(connection)
    if os.WIFSIGNALED(status):
        last = os.WTERMSIG(status)
        if last != signal.SIGKILL:
            signal.signal(last, signal.SIG_DFL)
        os.kill(os.getpid(), last)
    os._exit(os.WEXITSTATUS(status))


def ask(address: str, request: Dict[str, Any], files: Sequence[int]) -> Tuple[socket.socket, int]:
    """Have the starter start a process; return the connection that tells its end, and its number.

    Where the connection is closed before, the process is killed. ``seconds``: SIGALRM ends it then.
    ``plain``: what it starts in turn are processes of their own.
    """
    data = marshal.dumps({**request, "cpus": sorted(os.sched_getaffinity(0))})
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"\0{address}")
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
    connection.sendmsg([len(data).to_bytes(LENGTH, "big") + data], [rights])
    return connection, number_from(connection)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError("the other side has ended")
        data += more
    return data


def number_from(connection: socket.socket) -> int:
    """Return what the starter says next: a process, then its status."""
    return int.from_bytes(_exactly(connection, LENGTH), "big")


def serve(listening: socket.socket, links: Path) -> Dict[str, Any]:
    """In the starter: fork for each request; return only in a fork, with what it is to become.

    A fork between the two waits for the end of the wanted process, and ends it where the small
    program is gone.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks between
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            break
        connection.close()
    rights = array.array("i")
    head, ancillary, *_ = connection.recvmsg(
        LENGTH, socket.CMSG_SPACE(len(FILES) * rights.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    rights.frombytes(ancillary[0][2])
    head += _exactly(connection, LENGTH - len(head))
    request: Dict[str, Any] = marshal.loads(_exactly(connection, int.from_bytes(head, "big")))  # noqa: S302  of our own parent
    process = os.fork()
    if process:
        with open(str(links), "a") as file:
            file.write(f"{request['parent']} {process}\n")
        _wait_for(process, connection, rights)
    connection.close()
    os.setsid()
    for source, target in zip(rights, FILES):
        os.dup2(source, target)
        os.close(source)
    os.sched_setaffinity(0, request["cpus"])
    signal.alarm(request.get("seconds", 0))
    parent = request["parent"]
    os.getppid = lambda: parent  # the run's, as for the small program
    if request.get("plain"):
        import subprocess

        patched: Any = subprocess
        patched.Popen = subprocess.Popen.__base__
    return request


def _wait_for(process: int, connection: socket.socket, files: Sequence[int]) -> None:
    """In the fork between: tell the small program of the process and of its end."""
    import threading

    for file in files:
        os.close(file)
    connection.sendall(process.to_bytes(LENGTH, "big"))
    ended = False

    def end_with_it() -> None:
        connection.recv(1)  # returns when the small program is gone
        if not ended:
            os.killpg(process, signal.SIGKILL)

    threading.Thread(target=end_with_it, daemon=True).start()
    _, status = os.waitpid(process, 0)
    ended = True
    connection.sendall(status.to_bytes(LENGTH, "big"))
    os._exit(0)


if __name__ == "__main__":
    if os.path.basename(sys.argv[2]) in PARENTS:
        be_parent(sys.argv[1], sys.argv[2:])
    else:
        stand_for(sys.argv[1], sys.argv[2:])
