"""The loader: batches, corrupt files, processes that end and processes that die."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import signal
import sys
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
    """Have torch look for dead workers every second, which it does every five."""
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
@WORKERS
@pytest.mark.parametrize("batch_size", [1, 3, 16, 20])
def test_images_come_in_order_and_again(
    torch: Any, tmp_path: Path, workers: int, batch_size: int
) -> None:
    feed = feed_of(tmp_path, images=7, batch_size=batch_size, workers=workers)
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
def test_large_batches_are_loaded_in_parts(torch: Any, tmp_path: Path, workers: int) -> None:
    feed = feed_of(tmp_path, images=7, batch_size=10, workers=workers, task_images=4)
    batches = image_batches(feed)
    order = itertools.cycle(range(7))
    for batch in itertools.islice(batches, 3):
        wanted = expected(feed, list(itertools.islice(order, 10)))
        assert np.array_equal(batch.numpy(), wanted)
    feed.close()


@pytest.mark.framework
@WORKERS
def test_normalisation_on_the_host(torch: Any, tmp_path: Path, workers: int) -> None:
    feed = feed_of(
        tmp_path, images=3, batch_size=3, workers=workers, eight_bit=False, normalization="host"
    )
    batch = next(image_batches(feed))
    assert batch.dtype == torch.float32
    assert np.array_equal(batch.numpy(), normalize_host(expected(feed, [0, 1, 2])))
    feed.close()


@pytest.mark.framework
@WORKERS
def test_a_corrupt_image_is_replaced_by_the_next_and_named(
    torch: Any, tmp_path: Path, workers: int
) -> None:
    feed = feed_of(tmp_path, images=6, batch_size=6, workers=workers)
    assert feed.folder is not None
    for index in (2, 3):
        (tmp_path / f"{index:02}.jpg").write_bytes(b"no image")
    batches = image_batches(feed)
    for batch in itertools.islice(batches, 6):
        assert np.array_equal(batch.numpy()[:6], expected(feed, [0, 1, 4, 4, 4, 5]))
    assert tuple(feed.corrupt) == feed.folder.paths[2:4]
    feed.close()


@pytest.mark.framework
@WORKERS
def test_nothing_but_corrupt_images(torch: Any, tmp_path: Path, workers: int) -> None:
    feed = feed_of(tmp_path, images=5, batch_size=2, workers=workers)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    batches = image_batches(feed)
    with pytest.raises(DataError, match=r"00.jpg is the first of 5; .*--dataset-dir=PATH"):
        next(batches)
    feed.close()


@pytest.mark.framework
@pytest.mark.usefixtures("vigilant")
@pytest.mark.parametrize("victims", [1, 2])
def test_a_killed_worker_is_an_error_and_not_a_hang(
    torch: Any, tmp_path: Path, victims: int
) -> None:
    handler = signal.getsignal(signal.SIGCHLD)
    feed = feed_of(tmp_path, images=5, batch_size=16, workers=2)
    batches = image_batches(feed)
    next(batches)
    for process in multiprocessing.active_children()[:victims]:
        process.kill()
    with pytest.raises(DataError, match=r"image loading process ended.*--set dataloader_worker=N"):
        list(itertools.islice(batches, 20))
    assert signal.getsignal(signal.SIGCHLD) == handler
    assert next(batches, None) is None


def _die_with_lock(path: str, size: int) -> None:
    """In the place of load_image: kill this worker while it has a lock that all share."""
    frame = sys._getframe()
    while "done_event" not in frame.f_locals:  # of torch's loop of a worker
        assert frame.f_back is not None
        frame = frame.f_back
    frame.f_locals["data_queue"]._wlock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


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
def test_no_process_outlives_a_reader_that_is_killed(torch: Any, tmp_path: Path) -> None:
    feed_of(tmp_path, images=2, batch_size=1, workers=2)
    program = tmp_path / "killed.py"
    program.write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = (str(program), str(tmp_path))
    ended = SuiteServer.run(tmp_path, environment, *words, framework="torch")
    ended.assert_code(-signal.SIGKILL)
    # Python may add that semaphores were left.
    pids = [int(word) for line in ended.lines if line[:1].isdigit() for word in line.split()]
    assert len(pids) == 3
    wait_until_gone(pids)


def _broken(path: str, size: int) -> None:
    raise KeyError("bug")


@pytest.mark.framework
@pytest.mark.usefixtures("vigilant")
def test_a_worker_that_is_killed_with_a_lock_is_no_hang(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "load_image", _die_with_lock)
    batches = image_batches(feed_of(tmp_path, images=5, batch_size=16, workers=2))
    with pytest.raises(DataError, match=r"image loading process ended"):
        next(batches)
    assert multiprocessing.active_children() == []
    assert next(batches, None) is None


@pytest.mark.framework
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch's own end
@pytest.mark.parametrize(
    "error",
    [
        EOFError("unexpected EOF"),  # of a server that can fork no more
        RuntimeError("can't start new thread"),  # one that hands over tasks, or pins memory
    ],
)
def test_workers_that_cannot_all_be_started_are_one_message_and_none_is_left(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    started: List[int] = []
    start = loader._Worker.start

    def only_one(self: loader._Worker) -> None:
        if started:
            raise error
        start(self)
        started.append(self.pid or 0)

    monkeypatch.setattr(loader._Worker, "start", only_one)
    message = rf"2 image .* cannot be started \({error}\).*--set dataloader_worker=N"
    with pytest.raises(DataError, match=message):
        image_batches(feed_of(tmp_path, images=2, batch_size=1, workers=2))
    assert len(started) == 1


def _without_shared_memory(path: str, size: int) -> NDArray[np.uint8]:
    """In the place of load_image: have this worker find no room for what it hands over."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    return load_image(path, size)


def _without_memory(path: str, size: int) -> None:
    raise MemoryError("no memory\nin here")


@pytest.mark.framework
@pytest.mark.usefixtures("vigilant")
@pytest.mark.parametrize(
    ("load", "what"),
    [(_without_shared_memory, ".*"), (_without_memory, "MemoryError: no memory\nin here")],
)
def test_memory_that_is_short_is_no_hang(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Any, what: str
) -> None:
    monkeypatch.setattr(loader, "load_image", load)
    batches = image_batches(feed_of(tmp_path, images=5, batch_size=16, workers=1))
    message = rf"ended or failed: {what}; .*or /dev/shm was short.*rebatch_size=N"
    with pytest.raises(DataError, match=message):
        next(batches)
    assert multiprocessing.active_children() == []
    batches._loaded = ((bytes(sys.maxsize // 2), []) for _ in range(1))  # no memory in this process
    with pytest.raises(DataError, match=r"ended or failed: MemoryError; "):
        next(batches)


@pytest.mark.framework
def test_an_error_of_the_program_itself_stays_what_it_is(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = feed_of(tmp_path, images=2, batch_size=1, workers=1)
    monkeypatch.setattr(loader, "load_image", _broken)
    batches = image_batches(feed)
    with pytest.raises(KeyError, match=r"bug"):
        next(batches)
    feed.close()


@pytest.mark.framework
@WORKERS
def test_closing_is_prompt_and_final(torch: Any, tmp_path: Path, workers: int) -> None:
    # A task takes seconds, so that its worker has to leave it unfinished.
    feed = feed_of(tmp_path, images=3, batch_size=2000, workers=workers, image_size=380)
    batches = image_batches(feed)
    time.sleep(0.2)
    before = multiprocessing.active_children()
    assert len(before) == workers
    batches.close()
    assert multiprocessing.active_children() == []
    assert list(batches) == []
    batches.close()


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


@pytest.mark.framework
@pytest.mark.filterwarnings("error")
def test_more_workers_than_cpus_start_without_a_warning(torch: Any, tmp_path: Path) -> None:
    workers = len(os.sched_getaffinity(0)) + 1
    feed = feed_of(tmp_path, images=2, batch_size=1, workers=workers)
    next(image_batches(feed))
    assert len(multiprocessing.active_children()) == workers
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


@pytest.mark.framework
def test_a_feed_without_folder_is_refused(torch: Any) -> None:
    with pytest.raises(ValueError, match=r"nothing to load"):
        image_batches(ImageFeed("synthetic", 1))
