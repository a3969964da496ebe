"""Images that a GPU decodes: by nvJPEG on one, and elsewhere by Pillow in its place."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.images.feed import GPU, ImageFeed, find_images
from ipubench.fixtures.data.images.loader import image_batches
from ipubench.fixtures.data.images.preprocess import load_image
from ipubench.fixtures.data.images.samples import sample_pixels

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.framework
SIZE = 224
#: Of 255: Pillow's resizing rounds between its two passes. nvJPEG makes more of the colours at
#: edges, for each pair of pixels has one.
MOST, MEAN = {"cpu": 1, "cuda": 40}, {"cpu": 0.5, "cuda": 2.0}


def by_pillow(files: List[Any]) -> List[Any]:
    """In place of nvJPEG; it refuses what has hardly more than a header."""
    import torch

    found = []
    for content in files:
        if len(content) < 1000:
            raise RuntimeError("too little")
        with Image.open(io.BytesIO(bytes(content.numpy()))) as image:
            pixels = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        found.append(torch.from_numpy(np.ascontiguousarray(pixels)))
    return found


@pytest.fixture(params=["cpu", "cuda"])
def kind(request: pytest.FixtureRequest) -> str:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU that PyTorch sees")
    return str(request.param)


@pytest.fixture
def decode(kind: str) -> Any:
    """What decodes a task, and hands it over."""
    import torch

    from ipubench.fixtures.data.images import on_gpu

    if kind == "cuda":
        found = on_gpu.choose_decoder(ImageFeed("real", 1))
        assert found is not None
        return found

    class Done(on_gpu.Ready):
        def take(self) -> torch.Tensor:
            return self.images

    def decoded(encoded: on_gpu.Encoded, size: int) -> on_gpu.Ready:
        return Done(encoded.images(by_pillow, size, torch.device("cpu")), None)

    return decoded


@pytest.fixture
def batches_of(kind: str, decode: Any) -> Iterator[Any]:
    """What loads a feed's images; all ends with the test."""
    feeds: List[ImageFeed] = []

    def load(feed: ImageFeed) -> Any:
        feeds.append(feed)
        return image_batches(feed, pin_memory=kind == "cuda", decode=decode)

    yield load
    for feed in feeds:
        feed.close()


def feed_of(root: Path, batch_size: int, workers: int, task_images: int) -> ImageFeed:
    """Six files: four of them are for the GPU, in three shapes, and two are not."""
    whole = sample_pixels(0)
    kinds: List[Any] = [
        (whole, "JPEG", {}),
        (whole[:200, :150], "PNG", {}),
        (whole[:150, :200], "JPEG", {}),
        (sample_pixels(1), "JPEG", {"subsampling": 0}),
        (whole[:200, :150], "JPEG", {"progressive": True}),
        (whole[:, :, 0], "JPEG", {}),
    ]
    for index, (pixels, name, options) in enumerate(kinds):
        Image.fromarray(pixels).save(root / f"{index}.jpg", name, quality=90, **options)
    return ImageFeed(
        "real",
        batch_size,
        SIZE,
        folder=find_images(root),
        workers=workers,
        task_images=task_images,
        decoder=GPU,
    )


def alike(batch: Any, wanted: List[NDArray[np.uint8]], kind: str) -> None:
    difference = abs(batch.cpu().numpy().astype(int) - np.stack(wanted))
    assert difference.max() <= MOST[kind]
    assert difference.mean() <= MEAN[kind]


@pytest.mark.parametrize(("workers", "batch_size", "task_images"), [(0, 4, 4), (2, 3, 5)])
def test_images_are_pillow_s_but_for_a_bound(
    kind: str, batches_of: Any, tmp_path: Path, workers: int, batch_size: int, task_images: int
) -> None:
    feed = feed_of(tmp_path, batch_size, workers, task_images)
    assert feed.folder is not None
    order = itertools.cycle([load_image(path, SIZE) for path in feed.folder.paths])
    for batch in itertools.islice(batches_of(feed), 12):
        assert batch.device.type == kind
        alike(batch, list(itertools.islice(order, batch_size)), kind)
    assert feed.on_host == {1, 4}
    assert not feed.refused
    facts = feed.describe()
    assert (facts["decoder"], facts["transfer"]) == (GPU, "JPEG files")


def test_corrupt_files_are_replaced_and_named(kind: str, batches_of: Any, tmp_path: Path) -> None:
    feed = feed_of(tmp_path, 6, 0, 6)
    assert feed.folder is not None
    paths = feed.folder.paths
    for index in (2, 3):
        Path(paths[index]).write_bytes(b"no image")
    wanted = [load_image(paths[index], SIZE) for index in (0, 1, 4, 4, 4, 5)]
    alike(next(batches_of(feed)), wanted, kind)
    assert tuple(feed.corrupt) == paths[2:4]


def test_a_task_that_the_gpu_refuses_is_the_host_s(
    kind: str, batches_of: Any, tmp_path: Path
) -> None:
    """The header and the end of such a file are right, and it has no image."""
    feed = feed_of(tmp_path, 6, 0, 6)
    assert feed.folder is not None
    damaged = Path(feed.folder.paths[0])
    content = damaged.read_bytes()
    damaged.write_bytes(content[:700] + b"\xff\xd9")
    batch = next(batches_of(feed))
    assert len(batch) == 6
    if feed.refused:  # nvJPEG may make something of it
        wanted = [load_image(path, SIZE) for path in feed.folder.paths[1:]]
        alike(batch[1:], wanted, kind)
        assert feed.on_host == set(range(6))
    else:
        assert kind == "cuda"


def test_nothing_but_corrupt_files(batches_of: Any, tmp_path: Path) -> None:
    feed = feed_of(tmp_path, 2, 0, 2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"0.jpg is the first of 6"):
        next(batches_of(feed))


def test_closing_is_final(batches_of: Any, tmp_path: Path) -> None:
    batches = batches_of(feed_of(tmp_path, 2, 2, 2))
    for _ in range(2):
        batches.close()
        assert list(batches) == []


def test_the_host_decodes_where_the_gpu_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    from ipubench.fixtures.data.images import on_gpu

    feed = ImageFeed("real", 1, eight_bit=False, normalization="host")
    assert on_gpu.choose_decoder(feed) is None
    assert "normalises" in feed.decoder

    def missing() -> None:
        raise ImportError("No module named 'torchvision'")

    monkeypatch.setattr(on_gpu, "import_torchvision", missing)
    feed = ImageFeed("real", 1)
    assert on_gpu.choose_decoder(feed) is None
    assert feed.decoder.startswith("host") and "torchvision'" in feed.decoder
    assert feed.task_images == 0
