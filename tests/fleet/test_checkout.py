"""Where the project is on a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Iterator

import execnet
import pytest

from ipubench.plugins.fleet import connection
from ipubench.plugins.fleet.checkout import bring


@pytest.fixture
def homeless(tmp_path: Path) -> Iterator[Any]:
    """A process whose user has no home folder."""
    group = execnet.Group()
    yield group.makegateway(f"popen//chdir={tmp_path}//env:HOME=nowhere")
    group.terminate(10.0)


def test_a_host_without_a_home_folder_is_one_message_and_gets_no_folder(
    homeless: Any, tmp_path: Path
) -> None:
    message = "OSError: the user has no home folder there; set HOME, or "
    with pytest.raises(execnet.RemoteError, match=message):
        bring(homeless, Path(__file__).parent)
    given = json.dumps({"start": "project"})
    channel = homeless.remote_exec(connection._start, root="project", given=given)
    with pytest.raises(execnet.RemoteError, match=message):
        channel.waitclose()
    assert not list(tmp_path.iterdir())
