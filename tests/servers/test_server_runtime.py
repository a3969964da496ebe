"""A server is kept between cases with the same options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import CaseConfig, option
from ipubench.fixtures.machine.loopback import LocalServer
from ipubench.fixtures.runtimes.step import ReferenceJobs
from ipubench.fixtures.servers.server_runtime import ServerRuntime, largest_difference


class Device:
    """A host."""

    kind = "cpu"
    on_cpu = True
    emulated = False


@dataclass(frozen=True)
class Options(CaseConfig):
    """The served network, and the client's options."""

    model: str = option("one", "network")
    clients: int = option(1, "client processes", same_server=True)


class Kept(ServerRuntime[LocalServer]):
    """Serves nothing."""

    def reference(self) -> ReferenceJobs:
        return ReferenceJobs()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server: Any = Kept(Device(), tmp_path, False)  # type: ignore[arg-type]
    server._config = Options()
    yield server
    server.close()
    assert list(tmp_path.iterdir()) == []


def test_the_same_network_is_served_by_the_same_server(kept: Any) -> None:
    assert kept.can_reuse(Options(clients=2))
    assert not kept.can_reuse(Options(model="two"))


@pytest.mark.parametrize(
    ("kind", "given", "stops"),
    [("cpu", False, 0), ("cpu", True, 1), ("cuda", False, 1), ("ipu", False, 1)],
)
def test_a_server_is_kept_unless_it_holds_a_device_or_a_given_port(
    kept: Any, monkeypatch: pytest.MonkeyPatch, kind: str, given: bool, stops: int
) -> None:
    stopped = []
    monkeypatch.setattr(Device, "kind", kind)
    monkeypatch.setattr(Device, "on_cpu", kind == "cpu")
    kept._server = SimpleNamespace(has_given_port=given, stop=lambda: stopped.append(kind))
    kept.release()
    assert len(stopped) == stops


@pytest.mark.parametrize(
    ("precision", "allowed"), [("float32", 1e-4), ("bfloat16", 1e-2), ("float16", 1e-2)]
)
def test_responses_may_differ_by_the_rounding_of_their_type(precision: str, allowed: float) -> None:
    expected = np.array([[4.0, -8.0, 1.0]])

    def difference(share: float) -> float:
        found = expected + np.array([[0.0, 0.0, 8.0 * share]])
        return largest_difference(found, expected, precision, model="net", outputs="logits")

    assert difference(0.0) == 0.0
    assert difference(0.9 * allowed) == pytest.approx(0.9 * allowed)
    for share in (1.1 * allowed, float("nan")):
        with pytest.raises(CaseError, match=" net .*: the logits"):
            difference(share)
