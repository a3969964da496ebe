"""Messages for failed instances, and the log that they name."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List

import pytest

from ipubench.fixtures.instances.failures import Failures
from ipubench.fixtures.instances.plan import Launcher, Plan, single_process


def launcher_in(folder: Path) -> Any:
    """Return a launcher that has exited."""
    how = "ended with exit code 3"
    return SimpleNamespace(name="mpirun", log=folder / "launcher.log", how_it_ended=lambda: how)


def failures_of(folder: Path, count: int) -> Failures:
    """Return the failures of processes 77, 78, ... of a launcher."""
    plan = Plan(Launcher("mpirun", ()), count, (), count, one_job=False)
    return Failures(plan, folder, list(range(77, 77 + count)))


def test_before_the_start_the_log_of_an_instance_with_output_shows_why(
    tmp_path: Path,
) -> None:
    launcher = launcher_in(tmp_path)
    together = failures_of(tmp_path, 2)
    what, log = together.not_begun(launcher)
    assert re.match(r"mpirun .* 3 before", what) and log == launcher.log
    together.log(1).write_text("there is no such module\n")
    assert together.not_begun(launcher) == (what, together.log(1))
    by_itself = Failures(single_process("elsewhere", tmp_path, {}), tmp_path, [0])
    assert re.match("elsewhere .* 3 before", by_itself.not_begun(launcher)[0])


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ([], "1 of 3 (process 77) ended (mpirun ended with exit code 3)"),
        (
            ["PID 79 on node x exited on signal 9"],
            "3 of 3 (process 79) was killed by SIGKILL",
        ),
        # SIGTERM ends the others, and a number may be part of another one.
        (
            ["process 177, by signal 6", "process 77, by signal 15", "process 78, by signal 9"],
            "2 of 3 (process 78) was killed by SIGKILL",
        ),
        (["process 77, was ended by signal 40"], "1 of 3 (process 77) was killed by signal 40"),
    ],
)
def test_of_several_exits_the_first_is_named_with_the_known_facts(
    said: List[str], how: str, tmp_path: Path
) -> None:
    launcher = launcher_in(tmp_path)
    launcher.log.write_text("\n".join([*said, *100 * ["more words"]]))
    failures = failures_of(tmp_path, 3)
    what, log = failures.died([0, 1, 2], launcher)
    assert what.startswith(f"instance {how} while ")
    assert log == failures.log(int(how[0]) - 1)


def test_a_log_on_another_host_is_shown_if_hosts_share_its_folder(tmp_path: Path) -> None:
    failures = failures_of(tmp_path, 1)
    failures.elsewhere[0] = "10.0.0.2"
    log = failures.log(0)
    assert re.match(f"why. .*{log} on 10.0.0.2$", str(failures.error("why", log)))
    log.write_text("said\n")
    assert str(failures.error("why", log)).endswith("\n    said")
