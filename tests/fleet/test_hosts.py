"""Parsing the hosts of --tx."""

from __future__ import annotations

import pytest
from execnet import XSpec
from hypothesis import given
from hypothesis import strategies as st

from ipubench.plugins.fleet.hosts import FleetError, HostWorker, of_tx


def test_each_worker_has_a_name_and_a_device() -> None:
    found = of_tx(
        [
            "ssh=-p 22 me@host1//python=/opt/venv/bin/python//chdir=/srv/bench",
            "2*ssh=host2//chdir=bench//id=two",
            "popen",
        ]
    )
    text = "ssh=-p 22 me@host1//python=/opt/venv/bin/python//chdir=/srv/bench//worker=host1"
    assert found[0] == HostWorker("host1", text, "-p 22 me@host1", "/srv/bench")
    assert [(one.name, one.number) for one in found[1:]] == [
        ("two.0", 0),
        ("two.1", 1),
        ("popen", None),
    ]
    assert found[1].text == "ssh=host2//chdir=bench//worker=two.0"
    assert XSpec(found[1].text).worker == "two.0"


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["ssh=host"], "--tx=ssh=host: a host is ssh=ADDRESS//chdir=FOLDER"),
        (["socket=1.2.3.4:8888//chdir=x"], "a host is ssh="),
        (["0*popen"], "a host is ssh="),
        (["x*popen"], "--tx=x*popen: "),
        (["popen//popen"], "duplicate key"),
        (["ssh=host//chdir=x", "ssh=host//chdir=y"], "host is there twice"),
        (["2*popen//id=a", "popen//id=a.0"], "a.0 is there twice"),
        (["ssh=host//chdir=x//id=a b"], "'a b' cannot name a host"),
    ],
)
def test_errors_are_named(specs: list[str], message: str) -> None:
    with pytest.raises(FleetError) as error:
        of_tx(specs)
    assert message in str(error.value)


@given(st.text(max_size=60))
def test_any_words_are_hosts_or_one_message(text: str) -> None:
    try:
        assert of_tx([text])
    except FleetError as error:
        assert "--tx=" in str(error)
