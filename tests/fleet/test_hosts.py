"""Hosts as they are written, in a file and after --tx."""

from __future__ import annotations

import queue
import sys
import tempfile
from pathlib import Path
from typing import Any, List

import execnet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.fleet.connection import Connection, Place, Project
from ipubench.plugins.fleet.hosts import FleetError, HostSpec, of_file, of_tx


def written(folder: Path, text: str) -> str:
    path = folder / "hosts.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_and_tx_say_the_same(tmp_path: Path) -> None:
    text = """
    # the rack
    host1  python=/opt/venv/bin/python  chdir=/srv/bench   # by hand
    4*me@host2  id=two  env:A=b

    popen id=here nice=5
    """
    found = of_file(written(tmp_path, text))
    assert found == of_tx(
        [
            "ssh=host1//python=/opt/venv/bin/python//chdir=/srv/bench",
            "4*ssh=me@host2//id=two//env:A=b",
            "popen//id=here//nice=5",
        ]
    )
    assert found[0] == HostSpec(
        "host1", "host1", python="/opt/venv/bin/python", folder="/srv/bench"
    )
    assert (found[1].devices, found[1].environment) == (4, {"A": "b"})
    assert (found[2].address, found[2].nice) == ("", "5")


def test_execnet_reads_what_it_is_given() -> None:
    (host,) = of_tx(["ssh=me@host//ssh_config=/etc/c//env:A=b c"])
    spec = execnet.XSpec(host.xspec("two"))
    assert spec.ssh is not None
    assert spec.ssh.split()[-1] == "me@host"
    assert "BatchMode=yes" in spec.ssh
    assert (spec.id, host.command, spec.ssh_config) == ("two", "python3", "/etc/c")
    assert host.environment == {"A": "b c"}  # it does not pass through execnet's words
    (here,) = of_tx(["popen//id=here"])
    assert execnet.XSpec(here.xspec("here")).popen is True


def test_a_process_starts_with_the_variables_that_are_read_only_then() -> None:
    (host,) = _of_words(
        "host python=~/bin/python env:TOKEN=x 'env:PYTHONPATH=/a b' env:LD_PRELOAD=c"
    )
    assert host.command == "env PYTHONPATH='/a b' LD_PRELOAD=c ~/bin/python"
    (here,) = _of_words("popen env:MALLOC_ARENA_MAX=1")
    assert here.command.split() == ["env", "MALLOC_ARENA_MAX=1", sys.executable]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host pyton=/x", "line 1: pyton is no word for a host; there are: python, chdir, id"),
        ("\n0*host", "line 2: 0* is no number of devices"),
        ("x*host", "line 1: x* is no number of devices"),
        ("host\nhost", "line 2: host is there twice"),
        ("host id=a id=b", "line 1: id is there twice"),
        ("host python=", "line 1: python= names nothing"),
        ("-oProxyCommand=x", "line 1: a host begins with its address"),
        ("socket=1.2.3.4:8888", "line 1: a host begins with its address"),
        ("ssh://me@host:22 id=a", "line 1: ssh://me@host:22 is a URL; write USER@HOST, and a port"),
        ("host id='a b'", "line 1: 'a b' cannot name a host"),
        ("host 'a", "line 1: No closing quotation"),
        ("host nice=abc", "line 1: nice=abc is no priority"),
        ("host nice=20", "line 1: nice=20 is no priority; give a number from -20 to 19"),
        ("host env:=x", "line 1: env: needs a name"),
        ("popen chdir=~nobody-at-all/x", "line 1: there is no home folder for ~nobody-at-all"),
        ("2*popen id=a\npopen id=a.0", "line 2: a.0 is there twice"),
        ("# nobody", "the file names no host"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FleetError) as error:
        of_file(written(tmp_path, text))
    assert message in str(error.value)


def test_a_priority_that_is_refused_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: Any, spec: Any) -> None:
        raise execnet.RemoteError("Traceback\nPermissionError: not permitted\n")

    monkeypatch.setattr(execnet.Group, "makegateway", refuse)
    (host,) = of_tx(["popen//id=a//nice=-5"])
    project = Project(Path(), Path(), [], 1, None, "results")
    with pytest.raises(FleetError, match="^a: nice= or env: is refused there: Permission"):
        Connection(Place(host, 0), project, queue.Queue()).open(bring=False)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="there is no such file"):
        of_file(str(tmp_path / "none"))
    with pytest.raises(FleetError, match="cannot be read"):
        of_file(str(tmp_path))


def test_words_are_kept_from_execnets_separator() -> None:
    (host,) = of_tx(["popen//id=a"])
    assert host.folder is None
    (host,) = _of_words("popen ssh_config=/etc//c env:URL=http://host/x chdir=some/folder")
    assert execnet.XSpec(host.xspec("a")).ssh_config == "/etc/c"
    assert host.environment == {"URL": "http://host/x"}
    assert host.folder == str(Path("some/folder").absolute())


def _of_words(line: str) -> List[HostSpec]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(line)
        file.flush()
        return of_file(file.name)


@given(st.text(max_size=60))
def test_any_words_are_hosts_or_one_message(text: str) -> None:
    try:
        (host,) = of_tx([text])
    except FleetError:
        return
    # Nothing that was written becomes an option of ssh, or a key that is none of ours.
    assert not host.address.startswith("-")
    assert not set(host.address) & set(" \t\n")
