"""Downloading published weights, from a server on the loopback interface."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator

import pytest

from ipubench.models.torch.__main__ import main
from ipubench.models.torch.architectures import ARCHITECTURES

CONTENT = b"weights"
NAME = f"resnet50-{hashlib.sha256(CONTENT).hexdigest()[:8]}.pth"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve resnet50's weights; the fixture's value is the folder of the server."""
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / NAME).write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{NAME}"
        changed = dataclasses.replace(ARCHITECTURES["resnet50"], pretrained=url)
        monkeypatch.setitem(ARCHITECTURES, "resnet50", changed)
        yield folder
        server.shutdown()


def test_weights_are_downloaded_once_into_the_torch_cache(
    served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "home" / "hub" / "checkpoints" / NAME
    assert main(["fetch", "--dry-run", "resnet50"]) == 0
    assert not path.exists()
    shown = capsys.readouterr().out
    assert f"/{NAME}" in shown and str(path) in shown
    assert main(["fetch", "resnet50"]) == 0
    assert path.read_bytes() == CONTENT
    (served / NAME).unlink()
    assert main(["fetch", "resnet50"]) == 0


@pytest.mark.parametrize("content", [b"others", None])
def test_a_failed_download_leaves_nothing_and_names_the_place(
    content: Any, served: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (served / NAME).unlink() if content is None else (served / NAME).write_bytes(content)
    assert main(["fetch", "resnet50"]) == 1
    folder = tmp_path / "home" / "hub" / "checkpoints"
    assert not list(folder.iterdir())
    assert f"there as {folder / NAME}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["fetch"], ["fetch", "resnet"], ["fetch", "mobilenet-v3-small"], ["get", "x"]]
)
def test_a_wrong_command_is_a_usage_error(words: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 4
