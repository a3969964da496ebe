"""Who the controlling process takes for its instances, and what it makes of their answers.

The launcher is a small program that plays all instances by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Iterator, List
from unittest.mock import Mock

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import THREAD_VARIABLES
from ipubench.fixtures.instances import controller
from ipubench.fixtures.instances.controller import Instances
from ipubench.fixtures.instances.failures import InstanceError
from ipubench.fixtures.instances.plan import Launcher, Plan, alone
from ipubench.fixtures.instances.protocol import TOKEN_VARIABLE
from ipubench.fixtures.machine.output import LOGGER
from tests.machine.test_process import runs
from tests.support.harness import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the supervisor needs Linux: run it there"
)

# A stranger comes first. Then three instances join, the last one first, and obey.
PLAYERS = """
import os, struct, sys
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from ipubench.fixtures.instances.protocol import MOST_BYTES, TOKEN_VARIABLE, receive, send

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
HOW = sys.argv[2]
order = receive(members[0])
if HOW in ("leave", "say too much"):
    if HOW == "leave":
        members[1].close()
    else:
        os.write(members[1].fileno(), struct.pack("!i", MOST_BYTES + 1))
    while order is not None:  # the others stay until they are sent away
        order = receive(members[0])
if HOW == "hang":
    receive(members[0])  # the end
while order is not None and "close" not in order:
    for rank in (1, 2, 0):
        if rank:
            assert receive(members[rank]).keys() == order.keys()
        if HOW == "fail" and rank == 1:
            send(members[rank], {"error": "no"})
        else:
            if not rank:
                send(members[rank], {"log": "half way"})
            send(members[rank], {"answer": [rank, order]})
    order = receive(members[0])
if HOW == "part":
    send(members[1], {"answer": 1})
    members[1].close()
    for mark in ("one", "two"):  # Once the run has read two more messages, it has met the end.
        send(members[0], {"log": mark})
        while not os.path.exists(os.path.join(os.environ["MARKS"], mark)):
            pass
    for rank in (0, 2):
        send(members[rank], {"answer": rank})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "instances" / "case"


@pytest.fixture
def make(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = []

    def instances(how: str) -> Instances:
        launcher = Launcher("mpirun", (sys.executable, "-c", PLAYERS))
        cores = ((0,), (1,), (2,))
        found = Instances(
            Plan(launcher, 3, cores, 3, one_job=False), lambda address: [address, how], folder
        )
        made.append(found)
        return found

    yield instances
    for one in made:
        one.stop()


def test_one_that_has_closed_may_be_gone_before_the_others_have(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKS", str(tmp_path))
    monkeypatch.setattr(LOGGER, "info", lambda _, line: (tmp_path / line).touch())
    instances = make("part")
    instances.start()
    assert instances.order("close") == [0, 1, 2]
    instances.close()


def test_a_stranger_is_turned_away_and_answers_come_in_order(
    make: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instances = make("obey")
    assert not instances.idle
    instances.start()
    assert instances.idle
    assert [rank for rank, _ in instances.order("run", 7)] == [0, 1, 2]
    # A line of the log is shown and is no answer.
    assert capsys.readouterr().out == "half way\n"
    assert instances.order("run", 7)[0] == [0, {"run": 7}] and instances.idle
    assert [rank for rank, _ in instances.order_each("save_graph", ["x", None, None])] == [0, 1, 2]
    assert "joined" in (folder / "launcher.log").read_text()
    pid = instances.pids[0]
    assert instances.pids == [pid] * 3 and pid != os.getpid()
    assert instances.close() == 0
    assert not runs(pid)
    assert not folder.parent.exists()


def test_after_ctrl_c_they_are_not_idle(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    instances = make("obey")
    instances.start()
    monkeypatch.setattr(controller, "receive", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        instances.order("run", 7)
    assert not instances.idle


def test_an_error_ends_all(make: Any, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "instance-2.log").write_text("what an earlier run said")
    instances = make("fail")
    instances.start()
    pid = instances.pids[1]
    with pytest.raises(CaseError, match=rf"^instance 2 of 3 \(process {pid}\): no\. .* empty$"):
        instances.order("build")
    assert not runs(pid)
    assert not instances.idle
    instances.stop()


@pytest.mark.parametrize("how", ["leave", "say too much"])
def test_one_that_leaves_ends_all(how: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipubench.fixtures.instances.controller.LAST_WORDS_SECONDS", 0.5)
    instances = make(how)
    instances.start()
    with pytest.raises(CaseError, match=r"instance 2 of 3 \(process \d+\) ended.* while the case"):
        instances.order("build")
    assert not runs(instances.pids[1])


def test_a_killed_launcher_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    instances = make("obey")
    instances.start()
    os.kill(instances.pids[0], 9)
    monkeypatch.setattr(controller, "send", Mock(side_effect=BrokenPipeError))
    with pytest.raises(CaseError, match=r"\(mpirun was killed by SIGKILL\) while the case ran"):
        instances.order("build")


def test_one_that_does_not_answer_in_time_ends_all(make: Any) -> None:
    instances = make("hang")
    instances.start()
    with pytest.raises(InstanceError, match=r"instance 1 of 3 .*\(build\)"):
        instances.order("build", seconds=0.1)
    assert not runs(instances.pids[0])


ALONE = """
import os, sys
from ipubench.fixtures.instances.instance import Instance
instance = Instance(sys.argv[1], os.environ)
assert (instance.rank, instance.count, instance.alternates) == (0, 1, True)
while True:
    order, argument = instance.next_order()
    if order == "kill":
        os.kill(os.getpid(), 9)
    instance.answer([os.getcwd(), os.environ["SIDE"], argument])
    if order == "close":
        sys.exit(7)
"""


def alone_in(folder: Path, program: str = ALONE) -> Instances:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SIDE": "there"}
    plan = alone("the process there", folder, environment)
    return Instances(plan, lambda address: [sys.executable, "-c", program, address], folder / "log")


def test_a_process_without_a_launcher_runs_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    process = alone_in(tmp_path)
    process.start()
    assert process.order("round", 7) == [[str(tmp_path), "there", 7]]
    process.order("close")
    assert process.close() == 7


def test_a_process_without_a_launcher_that_ends_or_is_killed_says_so(tmp_path: Path) -> None:
    process = alone_in(tmp_path, "raise SystemExit('no such module')")
    with pytest.raises(InstanceError, match="    no such module$") as caught:
        process.start()
    assert caught.value.why.startswith("the process there ended with exit code 1 ")
    assert process.close() is None, "nothing is left to be closed"
    process = alone_in(tmp_path)
    process.start()
    with pytest.raises(InstanceError) as caught:
        process.order("kill")
    assert caught.value.why.startswith(
        f"the process there (process {process.pids[0]}) was killed by SIGKILL "
    )


def test_a_launcher_that_does_not_start_leaves_no_folder_of_gradients(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: List[Path] = []

    class Failing:
        def __init__(self, *_: object, remove: List[str], **__: object) -> None:
            found.extend(map(Path, remove))

        def start(self) -> None:
            assert found[0].is_dir()
            raise OSError("there is no memory")

        def stop(self) -> None:
            found.append(Path("ended"))

    monkeypatch.setattr("ipubench.fixtures.instances.controller.ServerProcess", Failing)
    plan = Plan(Launcher("processes", ()), 2, ((0,), (1,)), 2, one_job=True)
    with pytest.raises(OSError, match="there is no memory"):
        Instances(plan, lambda address: [address], folder).start()
    *folders, ended = found
    assert not any(map(Path.exists, folders)) and ended == Path("ended")


def test_instances_have_the_threads_of_their_cores_and_the_options_of_their_command(
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
