"""Which processes the controlling process accepts as instances, and how it uses their replies.

The launcher is a small program that plays all instances.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Dict, Iterator, List, Tuple
from unittest.mock import Mock

import pytest

from ipubench.fixtures.devices.cpu import THREAD_VARIABLES
from ipubench.fixtures.instances import controller, protocol
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.fixtures.instances.plan import Launcher, Plan, single_process
from ipubench.fixtures.instances.protocol import TOKEN_VARIABLE, send
from tests.machine.test_process import runs
from tests.support.harness import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the supervisor needs Linux: run it there"
)

# An unknown process comes first. Then three instances join, the last one first, and follow orders.
PLAYERS = """
import os, sys
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from ipubench.fixtures.instances.protocol import TOKEN_VARIABLE, receive, send

def join(rank, token=os.environ[TOKEN_VARIABLE]):
    connection = Client(sys.argv[1], authkey=token.encode())
    send(connection, {"rank": rank, "pid": os.getpid()})
    return connection, receive(connection)

try:
    raise SystemExit(join(0, token="guess"))
except AuthenticationError:
    pass
assert join(3)[1] is None
members = {rank: join(rank)[0] for rank in (2, 1)}
assert join(1)[1] is None, "there is one already"
members[0], _ = join(0)
print("joined", flush=True)
order = {}
while "close" not in order:
    orders = [receive(members[rank]) for rank in (0, 1, 2)]
    order = orders[0]
    for rank in (1, 2, 0):
        if not rank:
            send(members[rank], {"log": "half way"})
        send(members[rank], {"answer": [rank, orders[rank]]})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "instances" / "case"


@pytest.fixture
def instances(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instances]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    launcher = Launcher("mpirun", (sys.executable, "-c", PLAYERS))
    cores = ((0,), (1,), (2,))
    found = Instances(Plan(launcher, 3, cores, 3, one_job=False), lambda address: [address], folder)
    yield found
    found.stop()


def test_an_unknown_process_is_rejected_and_replies_come_in_order(
    instances: Instances, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / "instance-2.log").write_text("what an earlier run said")
    assert not instances.idle
    instances.start()
    assert instances.idle and not (folder / "instance-2.log").exists()
    assert instances.command("run", 7) == [[rank, {"run": 7}] for rank in range(3)]
    # A log line is shown and is not a reply.
    assert capsys.readouterr().out == "half way\n"
    assert instances.command_each("save_graph", ["x", None, 7])[2] == [2, {"save_graph": 7}]
    assert "joined" in (folder / "launcher.log").read_text()
    pid = instances.pids[0]
    assert instances.pids == [pid] * 3 and pid != os.getpid()
    assert instances.command("close") and instances.close() == 0
    assert not runs(pid)
    assert not folder.parent.exists()


def test_a_killed_launcher_is_named(instances: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    instances.start()
    os.kill(instances.pids[0], 9)
    monkeypatch.setattr(controller, "send", Mock(side_effect=BrokenPipeError))
    with pytest.raises(InstanceError, match=r"\(mpirun .* SIGKILL\)"):
        instances.command("build")
    assert not instances.idle


Pair = Tuple[Instances, List[Connection]]


@pytest.fixture
def pair(folder: Path) -> Iterator[Pair]:
    """Two instances that have begun, and their ends of the connections; no process runs."""
    near, far = zip(*(Pipe() for _ in range(2)))
    plan = Plan(Launcher("mpirun", ()), 2, (), 2, one_job=False)
    found = Instances(plan, lambda address: [], folder)
    found._connections.update(enumerate(near))
    yield found, list(far)
    for end in far:
        end.close()
    found.stop()


def test_a_closed_instance_may_exit_before_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances, far = pair
    for rank, end in enumerate(far):
        send(end, {"answer": rank})
        end.close()
    monkeypatch.setattr(controller, "wait", lambda connections, seconds: connections[-1:])
    assert instances.command("close") == [0, 1]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        # The launcher may have ended another one before anyone checked.
        (
            [{"log": "half way"}, {"error": "no memory"}],
            r"^instance 2 of 2 .*: no memory\. ",
        ),
        ([], r"^instance 1 of 2 \(process 0\) ended "),
    ],
)
def test_a_failed_instance_ends_all_and_is_named(
    pair: Pair, sent: List[Dict[str, str]], message: str
) -> None:
    instances, far = pair
    for one in sent:
        send(far[1], one)
    for end in far:
        end.close()
    with pytest.raises(InstanceError, match=message):
        instances.command("run", 7)
    assert not instances.idle


def test_an_instances_report_is_its_reason(pair: Pair) -> None:
    instances, far = pair
    send(far[1], {"error": "no layer\nmore"})
    with pytest.raises(InstanceError) as caught:
        instances.command("run", 7)
    assert caught.value.said == "no layer"


def test_an_oversized_message_is_a_failure(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_BYTES", 100)
    instances, far = pair
    far[1].send_bytes(b" " * 101)
    with pytest.raises(InstanceError, match="^instance 2 of 2 "):
        instances.command("run", 7)


def test_the_instance_that_takes_too_long_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "WATCH_SECONDS", 0)
    instances, far = pair
    waited: List[float] = []
    instances.waiting = waited.append
    send(far[0], {"answer": 1})
    with pytest.raises(InstanceError, match=r"^instance 2 of 2 .*\(run\)"):
        instances.command("run", 7, seconds=0.0)
    assert waited and not instances.idle


def test_after_ctrl_c_instances_are_not_idle(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    instances, far = pair
    send(far[0], {"answer": 1})
    assert instances.idle
    monkeypatch.setattr(controller, "receive", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        instances.command("run", 7)
    assert not instances.idle


ALONE = """
import os, sys
from ipubench.fixtures.instances.instance import Instance
instance = Instance(sys.argv[1], os.environ)
assert (instance.rank, instance.count, instance.alternates) == (0, 1, True)
while True:
    order, argument = instance.next_command()
    if order == "kill":
        os.kill(os.getpid(), 9)
    instance.reply([os.getcwd(), os.environ["SIDE"], argument])
    if order == "close":
        sys.exit(7)
"""


def alone_in(folder: Path, program: str = ALONE) -> Instances:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIDE": "there"}
    plan = single_process("the process there", folder, environment)
    return Instances(plan, lambda address: [sys.executable, "-c", program, address], folder / "log")


def test_a_process_without_a_launcher_runs_with_its_folder_and_environment(tmp_path: Path) -> None:
    process = alone_in(tmp_path)
    process.start()
    assert process.command("round", 7) == [[str(tmp_path), "there", 7]]
    process.command("close")
    assert process.close() == 7


def test_a_process_without_a_launcher_reports_its_exit_or_signal(tmp_path: Path) -> None:
    process = alone_in(tmp_path, "raise SystemExit('no such module')")
    with pytest.raises(InstanceError, match="    no such module$") as caught:
        process.start()
    assert " exit code 1 " in caught.value.why
    found = (caught.value.name, caught.value.said, caught.value.lines)
    assert found == ("the process there", "", ["no such module"])
    assert process.close() is None  # nothing is left open
    process = alone_in(tmp_path)
    process.start()
    with pytest.raises(InstanceError) as caught:
        process.command("kill")
    assert (caught.value.name, caught.value.code) == ("the process there", -9)
    assert f" (process {process.pids[0]}) " in caught.value.why and "SIGKILL" in caught.value.why


def test_a_launcher_that_does_not_start_leaves_no_gradient_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: List[Path] = []

    class Failing:
        def __init__(self, *_: object, remove: List[str], **__: object) -> None:
            found.extend(map(Path, remove))

        def start(self) -> None:
            assert found[0].is_dir()
            raise OSError("no memory")

        def stop(self) -> None:
            found.append(Path("ended"))

    monkeypatch.setattr("ipubench.fixtures.instances.controller.ServerProcess", Failing)
    plan = Plan(Launcher("processes", ()), 2, ((0,), (1,)), 2, one_job=True)
    with pytest.raises(OSError, match="no memory"):
        Instances(plan, lambda address: [address], folder).start()
    *folders, ended = found
    assert not any(map(Path.exists, folders)) and ended == Path("ended")


def test_instances_have_the_threads_of_their_cores_and_their_command_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYTEST_ADDOPTS", *THREAD_VARIABLES):
        monkeypatch.setenv(name, "8")
    launcher = Launcher("processes", ())
    of_a_host = controller._environment(Plan(launcher, 2, ((0, 1), (2, 3)), 2, False), "token")
    of_an_ipu = controller._environment(Plan(launcher, 2, (), 2, False), "token")
    for found, threads in ((of_a_host, "2"), (of_an_ipu, "8")):
        assert {found[name] for name in THREAD_VARIABLES} == {threads}
        assert "PYTEST_ADDOPTS" not in found and found[TOKEN_VARIABLE] == "token"
