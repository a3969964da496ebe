"""A server that is kept between cases: for the same options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ipubench.fixtures.machine.loopback import LocalServer
from ipubench.fixtures.servers.kept_server import KeptServer


class Device:
    """A host."""

    kind = "cpu"


@dataclass(frozen=True)
class Options:
    """What is served, and how it is asked."""

    model: str = "one"
    clients: int = 1


class Kept(KeptServer[LocalServer]):
    """Serves nothing."""

    request_options = frozenset({"clients"})

    def canary(self) -> Any:
        return None


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server: Any = Kept(Device(), tmp_path, False)  # type: ignore[arg-type]
    server._config = Options()
    yield server
    server.close()
    assert list(tmp_path.iterdir()) == []


def test_the_same_network_is_served_by_the_same_server(kept: Any) -> None:
    assert kept.serves(Options(clients=2))
    assert not kept.serves(Options(model="two"))
