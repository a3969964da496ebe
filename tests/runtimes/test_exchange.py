"""The exchange between a job's processes on a host, and its folder."""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, List

import numpy as np
import pytest

from ipubench.fixtures.machine import scratch
from ipubench.fixtures.runtimes import exchange
from ipubench.fixtures.runtimes.exchange import Exchange, make_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: run it there")

SIZES = (1, 7, 100_003, 0, 5, 100_003)


def numbers(rank: int, call: int, size: int) -> Any:
    return np.random.default_rng([rank, call]).normal(size=size).astype(np.float32)


def take_part(folder: Path, rank: int, count: int, answers: Any) -> None:
    ours = Exchange(folder, rank, count)
    answers.put((rank, [ours.mean(numbers(rank, *call)) for call in enumerate(SIZES)]))


@pytest.fixture
def folder() -> Iterator[Path]:
    made = make_folder(3)
    yield made
    scratch.remove(made)


def test_all_get_the_mean_of_any_size(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    processes = [
        context.Process(target=take_part, args=(folder, rank, 3, answers)) for rank in range(3)
    ]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for call, size in enumerate(SIZES):
        theirs: List[Any] = [found[rank][call] for rank in range(3)]
        total = numbers(0, call, size) + numbers(1, call, size) + numbers(2, call, size)
        assert all(np.array_equal(one, total / np.float32(3)) for one in theirs)


def test_other_users_cannot_enter_the_folder(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.stat().st_uid == os.getuid()
    Exchange(folder, 1, 3)
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in folder.iterdir())


def test_a_link_in_place_of_a_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (folder / exchange.RESULT).symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        Exchange(folder, 0, 3)
    assert target.read_text() == "kept"


def test_without_shared_memory_the_folder_is_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(exchange, "LEAST_FREE", 1 << 62)
    made = make_folder(2)
    assert made.parent == tmp_path
    scratch.remove(made)
