"""The loader: batches, corrupt files, processes that end and processes that die."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.images import loader
from ipubench.fixtures.data.images.feed import ImageFeed, find_images
from ipubench.fixtures.data.images.loader import image_batches, prefetched_batches
from ipubench.fixtures.data.images.preprocess import load_image, normalize_host
from tests.machine.test_process import wait_until_gone
from tests.support.harness import ROOT, SuiteServer

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = 32
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = multiprocessing.active_children()
    yield
    assert multiprocessing.active_children() == before


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="needs PyTorch: pip install torch")


@pytest.fixture
def vigilant(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch look for dead workers every second instead of every five."""
    from torch.utils.data import _utils, dataloader

    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
    waiting = dataloader._MultiProcessingDataLoaderIter._try_get_data
    monkeypatch.setattr(waiting, "__defaults__", (1.0,))


def feed_of(root: Path, images: int, batch_size: int, workers: int, **options: Any) -> ImageFeed:
    for index in range(images):
        pixels = np.random.RandomState(index).randint(0, 256, (40, 50, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{index:02}.jpg")
    return ImageFeed(
        "real",
        batch_size,
        options.pop("image_size", SIZE),
        folder=find_images(root),
        workers=workers,
        **options,
    )


def expected(feed: ImageFeed, indices: List[int]) -> NDArray[np.uint8]:
    assert feed.folder is not None
    return np.stack([load_image(feed.folder.paths[index], SIZE) for index in indices])


@pytest.mark.framework
@pytest.mark.parametrize(
    ("workers", "batch_size", "task_images"), [(0, 3, 0), (2, 1, 0), (2, 20, 0), (2, 10, 4)]
)
def test_images_come_in_order_and_again(
    torch: Any, tmp_path: Path, workers: int, batch_size: int, task_images: int
) -> None:
    feed = feed_of(tmp_path, 7, batch_size, workers, task_images=task_images)
    batches = image_batches(feed)
    order = itertools.cycle(range(7))
    for batch in itertools.islice(batches, 12):
        assert batch.dtype == torch.uint8
        wanted = expected(feed, list(itertools.islice(order, batch_size)))
        assert np.array_equal(batch.numpy(), wanted)
    assert not feed.corrupt
    feed.close()


@pytest.mark.framework
@WORKERS
def test_a_corrupt_image_is_replaced_by_the_next_and_named(
    torch: Any, tmp_path: Path, workers: int
) -> None:
    feed = feed_of(
        tmp_path, images=6, batch_size=6, workers=workers, eight_bit=False, normalization="host"
    )
    assert feed.folder is not None
    for index in (2, 3):
        (tmp_path / f"{index:02}.jpg").write_bytes(b"no image")
    wanted = normalize_host(expected(feed, [0, 1, 4, 4, 4, 5]))
    for batch in itertools.islice(image_batches(feed), 6):
        assert batch.dtype == torch.float32
        assert np.array_equal(batch.numpy(), wanted)
    assert tuple(feed.corrupt) == feed.folder.paths[2:4]
    feed.close()


@pytest.mark.framework
@WORKERS
def test_only_corrupt_images(torch: Any, tmp_path: Path, workers: int) -> None:
    feed = feed_of(tmp_path, images=5, batch_size=2, workers=workers)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    batches = image_batches(feed)
    with pytest.raises(DataError, match=r"00\.jpg .* of 5; .*--dataset-dir"):
        next(batches)
    feed.close()


@pytest.mark.framework
@pytest.mark.usefixtures("vigilant")
def test_a_killed_worker_is_an_error_not_a_hang(torch: Any, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    feed = feed_of(tmp_path, images=5, batch_size=16, workers=2)
    batches = image_batches(feed)
    next(batches)
    multiprocessing.active_children()[0].kill()
    with pytest.raises(DataError, match="dataloader_worker=N"):
        list(itertools.islice(batches, 20))
    assert signal.getsignal(signal.SIGCHLD) == handler
    assert next(batches, None) is None


# Not guarded by __name__: a worker that imported it would start workers.
KILLED = """
import multiprocessing, multiprocessing.forkserver, os, signal, sys
from pathlib import Path
from ipubench.fixtures.data.images.feed import ImageFeed, find_images
from ipubench.fixtures.data.images.loader import image_batches
feed = ImageFeed("real", 1, 32, folder=find_images(Path(sys.argv[1])), workers=2)
next(image_batches(feed))
pids = [process.pid for process in multiprocessing.active_children()]
print(multiprocessing.forkserver._forkserver._forkserver_pid, *pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.framework
def test_no_process_outlives_a_killed_reader(torch: Any, tmp_path: Path) -> None:
    feed_of(tmp_path, images=2, batch_size=1, workers=2)
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = (str(program), str(tmp_path))
    ended = SuiteServer.run(tmp_path, environment, *words, framework="torch")
    ended.assert_code(-signal.SIGKILL)
    # Python may report leaked semaphores.
    pids = [int(word) for line in ended.lines if line[:1].isdigit() for word in line.split()]
    assert len(pids) == 3
    wait_until_gone(pids)


def _without_shared_memory(path: str, size: int) -> NDArray[np.uint8]:
    """Replaces load_image: leaves this worker no shared memory for its result."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return load_image(path, size)


@pytest.mark.framework
@pytest.mark.usefixtures("vigilant")
def test_full_shared_memory_does_not_hang(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "load_image", _without_shared_memory)
    batches = image_batches(feed_of(tmp_path, images=5, batch_size=16, workers=1))
    with pytest.raises(DataError, match="shm was short.*rebatch_size=N"):
        next(batches)
    assert multiprocessing.active_children() == []


def _slowly(path: str, size: int) -> NDArray[np.uint8]:
    """Replaces load_image: takes longer than the reader waits."""
    time.sleep(0.5)
    return load_image(path, size)


@pytest.mark.framework
def test_an_interrupted_reader_leaves_no_worker(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "load_image", _slowly)
    batches = image_batches(feed_of(tmp_path, images=1, batch_size=8, workers=1))
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        next(batches)
    assert caught.traceback  # which refers to the iterator's frames
    assert multiprocessing.active_children() == []


@pytest.mark.framework
def test_closing_is_final(torch: Any, tmp_path: Path) -> None:
    batches = image_batches(feed_of(tmp_path, images=3, batch_size=16, workers=2))
    assert len(multiprocessing.active_children()) == 2
    for _ in range(2):
        batches.close()
        assert multiprocessing.active_children() == []
        assert list(batches) == []


@pytest.mark.framework
def test_workers_run_on_the_given_cpus(torch: Any, tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("needs two CPUs")
    feed = feed_of(tmp_path, images=2, batch_size=1, workers=1)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        next(image_batches(feed, cpus=allowed))
        (worker,) = multiprocessing.active_children()
        assert os.sched_getaffinity(worker.pid or 0) == allowed
    finally:
        os.sched_setaffinity(0, allowed)
        feed.close()


@pytest.mark.parametrize(
    ("workers", "batch_size", "task_images", "count"),
    [
        *((0, 4, 0, 0), (1, 4, 0, 8), (1, 16, 0, 2), (2, 100, 0, 4), (1, 300, 0, 1)),
        *((1, 4, 8, 4), (1, 4, 11, 4), (1, 4, 3, 2), (2, 300, 30, 1)),
    ],
)
def test_prefetched_batches_are_counted(
    workers: int, batch_size: int, task_images: int, count: int
) -> None:
    feed = ImageFeed("real", batch_size, workers=workers, task_images=task_images)
    assert prefetched_batches(feed) == count
