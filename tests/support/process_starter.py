"""Starts a run's own processes without their imports, which take most of the time.

A run starts fresh processes (``python -m pytest ...``) and workers of pytest-xdist (``python -c``).
In a run of the suite server, ``subprocess.Popen`` starts this file instead, a small program. It
passes its arguments, environment and files to the starter, a process that has imported what every
run imports. The starter forks, and the fork becomes the wanted process. The small program
represents it: it is a child of the run, forwards signals, and exits like the wanted process. A
supervisor of the run (fixtures/machine/supervisor.py) and the launcher of its instances
(fixtures/instances/processes.py, or tests/doubles/mpirun.py) are still real processes, and their
children are started this way, too.
"""

from __future__ import annotations

import array
import marshal
import os
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the small program imports as little as possible
    from pathlib import Path
    from typing import Any, Dict, Sequence, Tuple

#: Instead of a framework: the server for runs in another checkout.
NO_SUITE = "no-suite"
#: Programs of a run that start others, and import only the standard library.
PARENTS = ("supervisor.py", "processes.py", "mpirun.py")
FILES = (0, 1, 2)
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LENGTH = 4  # bytes of a number on the connection


class Files:
    """Files in a folder that connect a server with its users."""

    def __init__(self, folder: Path, framework: str) -> None:
        name = framework or "suite"
        #: A pipe that each user keeps open.
        self.users = folder / f"{name}.users"
        self.lock = folder / f"{name}.lock"
        self.address = folder / f"{name}.address"
        #: Lines with a process and one started for it, whose parent differs in the kernel.
        self.links = folder / f"{name}.links"


def by_starter(address: str, words: Any) -> Any:
    """Return a command that has the starter run ``words``, or ``words`` if unsuitable."""
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
    """Return the arguments that replace Python's; the starter runs those that follow."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), address]


def use_starter(address: str) -> None:
    """Have ``subprocess.Popen`` use the starter from now on in this process."""
    import subprocess

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, args: Any, *more: Any, **named: Any) -> None:
            super().__init__(by_starter(address, args), *more, **named)

    patched: Any = subprocess
    patched.Popen = Popen


def be_parent(address: str, words: Sequence[str]) -> None:
    """Become a program of the run whose children the starter starts."""
    import runpy

    use_starter(address)
    sys.argv[:] = words
    runpy.run_path(words[0], run_name="__main__")


def _is_suites(program: str) -> bool:
    """Return whether a program runs a checkout's suite and nothing else."""
    return os.path.basename(program) == "guarded_pytest.py"


def stand_for(address: str, words: Sequence[str]) -> None:
    """In the small program: have the starter run ``words``, and exit like them."""
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
    """Have the starter start a process; return the connection that reports its end, and its number.

    If the connection is closed earlier, the process is killed. ``seconds``: SIGALRM ends it then.
    ``plain``: it starts real processes.
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
    """Return the starter's next number: a process, then its status."""
    return int.from_bytes(_exactly(connection, LENGTH), "big")


def serve(listening: socket.socket, links: Path) -> Dict[str, Any]:
    """In the starter: fork for each request; return only in a fork, with its task.

    A fork in between waits for the end of the wanted process, and ends it if the small program is
    gone.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks in between need no wait
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
    """In the fork in between: report the process and its end to the small program."""
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
