"""Parsing hosts, from a file and from --tx."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import execnet
import pytest
from execnet.gateway_io import popen_args
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.fleet.hosts import FleetError, HostSpec, of_file, of_tx


def written(folder: Path, text: str) -> str:
    path = folder / "hosts.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_and_tx_are_equivalent(tmp_path: Path) -> None:
    text = """
    # the rack
    host1  python=/opt/venv/bin/python  chdir=/srv/bench   # by hand
    4*me@host2  id=two  env:A=b

    popen id=here
    """
    found = of_file(written(tmp_path, text))
    assert found == of_tx(
        [
            "ssh=host1//python=/opt/venv/bin/python//chdir=/srv/bench",
            "4*ssh=me@host2//id=two//env:A=b",
            "popen//id=here",
        ]
    )
    assert found[0] == HostSpec(
        "host1", "host1", python="/opt/venv/bin/python", folder="/srv/bench"
    )
    assert (found[1].devices, found[1].environment) == (4, {"A": "b"})
    assert (found[2].address, found[2].interpreter) == ("", None)


@pytest.mark.parametrize(
    "words", ["", r" 'python=~/my\ env/python'", """ "env:A=it's b" env:B=$HOME"""]
)
def test_a_command_reaches_the_remote_shell_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    (tmp_path / "ssh").write_text('#!/bin/sh\nfor last; do :; done; printf %s "$last"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (host,) = of_file(written(tmp_path, f"me@host{words}"))
    spec = execnet.XSpec("popen")
    spec.python = host.interpreter
    command = popen_args(spec)
    program = command[-1]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert shlex.split(said)[-3:] == ["-u", "-c", program]
    assert said.startswith("env ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host pyton=/x", "line 1: pyton is not an option"),
        ("\n0*host", "line 2: 0* is not a number of devices"),
        ("x*host", "line 1: x* is not a number of devices"),
        ("host\nhost", "line 2: host is there twice"),
        ("host python=", "line 1: python= is empty"),
        ("-oProxyCommand=x", "line 1: a host begins with its address"),
        ("socket=1.2.3.4:8888", "line 1: a host begins with its address"),
        ("host id='a b'", "line 1: 'a b' cannot name a host"),
        ("host 'a", "line 1: No closing quotation"),
        ("host env:=x", "line 1: env: needs a name"),
        ("popen chdir=~nobody-at-all/x", "line 1: ~nobody-at-all has no home folder"),
        ("2*popen id=a\npopen id=a.0", "line 2: a.0 is there twice"),
        ("# nobody", "the file lists no host"),
    ],
)
def test_errors_are_named_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FleetError) as error:
        of_file(written(tmp_path, text))
    assert message in str(error.value)


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(FleetError, match="cannot be read"):
        of_file(str(tmp_path / "none"))
    with pytest.raises(FleetError, match="cannot be read"):
        of_file(str(tmp_path))


@given(st.text(max_size=60))
def test_any_words_are_hosts_or_one_message(text: str) -> None:
    try:
        (host,) = of_tx([text])
    except FleetError:
        return
    # No input becomes an option of ssh or an unknown key.
    assert not host.address.startswith("-")
    assert not set(host.address) & set(" \t\n")
