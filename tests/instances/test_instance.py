"""What one instance says to its run, and where it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Tuple
from unittest.mock import Mock, call

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.instances import instance
from ipubench.fixtures.instances.instance import Instance
from ipubench.fixtures.machine.output import LOGGER


def member(rank: int = 0, remote: bool = False, said: Optional[Mock] = None) -> Instance:
    """Return an instance that has introduced itself; ``said`` gets its messages."""
    found = Instance.__new__(Instance)
    found.connection = Mock(send=said or Mock())
    found.rank, found.remote, found.failed = rank, remote, False
    found._takes_share = False
    return found


def test_only_the_first_reason_of_a_failure_is_told() -> None:
    said = Mock()
    one = member(said=said)
    one.fail("there is no memory")
    one.fail("and so nothing is built")
    assert said.mock_calls == [call({"error": "there is no memory"})]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_instance_alone_tells_the_lines_of_the_log(rank: int) -> None:
    said = Mock()
    one = member(rank, said=said)
    with one._forwarded_log():
        LOGGER.error("half way")
    LOGGER.error("no order is carried out")
    told = [] if rank else [call({"log": "half way"})]
    assert said.mock_calls == told


@pytest.mark.parametrize(
    ("remote", "place", "leads"),
    [(True, (0, 2), True), (True, (1, 2), False), (True, None, False), (False, (0, 2), False)],
)
def test_one_instance_leads_each_host_on_which_the_run_is_not(
    remote: bool, place: Optional[Tuple[int, int]], leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "place_on_host", lambda: place)
    assert member(remote=remote).leads_its_host == leads


def test_a_log_that_leads_elsewhere_is_not_written(tmp_path: Path) -> None:
    one = member()
    one.log = tmp_path / "log"
    one.log.symlink_to("other")
    with pytest.raises(CaseError, match="symbolic links"):
        one.settle()
    assert not (tmp_path / "other").exists()
    assert one.failed
