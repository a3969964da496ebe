"""Images that a GPU decodes. Without a GPU Pillow takes the place of nvJPEG."""

from __future__ import annotations

import io
import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Iterator, List

import numpy as np
import pytest
from PIL import Image

from ipubench.fixtures.case.errors import DataError
from ipubench.fixtures.data.images.feed import GPU, ImageFeed, find_images
from ipubench.fixtures.data.images.loader import image_batches
from ipubench.fixtures.data.images.preprocess import load_image
from ipubench.fixtures.data.images.samples import sample_pixels
from ipubench.fixtures.runtimes.step import ReferenceJobs, ask

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.framework
SIZE = 224
#: Of 255. Pillow's resizing rounds between its two passes. nvJPEG also interpolates the colours in
#: another way, which a JPEG file usually has at half the resolution.
MOST, MEAN = {"cpu": 1, "cuda": 40}, {"cpu": 0.5, "cuda": 2.0}


def by_pillow(files: List[Any]) -> List[Any]:
    """Takes the place of nvJPEG. Refuses files that are hardly longer than a header."""
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
    """The decoder of a task."""
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
    """Loads a feed's images. All feeds end with the test."""
    from ipubench.fixtures.data.images import on_gpu

    feeds: List[ImageFeed] = []

    def load(feed: ImageFeed) -> Any:
        feeds.append(feed)
        make = partial(on_gpu.GpuBatches, decode=decode)
        return image_batches(feed, pin_memory=kind == "cuda", make=make)

    yield load
    for feed in feeds:
        feed.close()


def feed_of(root: Path, batch_size: int, workers: int, task_images: int) -> ImageFeed:
    """Six files: the GPU takes four of them, in three shapes."""
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


@pytest.mark.parametrize(
    ("workers", "batch_size", "task_images"), [(0, 4, 4), (2, 3, 5), (0, 8, 3)]
)
def test_images_agree_with_pillow_within_a_bound(
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


def test_a_task_that_the_gpu_refuses_runs_on_the_host(
    kind: str, batches_of: Any, tmp_path: Path
) -> None:
    """The damaged file has a header and an end, but no image."""
    feed = feed_of(tmp_path, 6, 0, 6)
    assert feed.folder is not None
    damaged = Path(feed.folder.paths[0])
    content = damaged.read_bytes()
    damaged.write_bytes(content[:700] + b"\xff\xd9")
    batch = next(batches_of(feed))
    assert len(batch) == 6
    if feed.refused:  # nvJPEG may decode something
        wanted = [load_image(path, SIZE) for path in feed.folder.paths[1:]]
        alike(batch[1:], wanted, kind)
        assert feed.on_host == set(range(6))
    else:
        assert kind == "cuda"


def test_only_corrupt_files(batches_of: Any, tmp_path: Path) -> None:
    feed = feed_of(tmp_path, 2, 0, 2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"0.jpg .* first of 6"):
        next(batches_of(feed))


def test_closing_is_final(batches_of: Any, tmp_path: Path) -> None:
    batches = batches_of(feed_of(tmp_path, 2, 2, 2))
    for _ in range(2):
        batches.close()
        assert list(batches) == []


@pytest.mark.filterwarnings("ignore:.pin_memory. argument")
@pytest.mark.parametrize("by_gpu", [True, False])
def test_a_case_on_a_gpu_uses_the_decoder_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, decode: Any, by_gpu: bool
) -> None:
    """A double replaces the network and, without a GPU, the device."""
    import torch

    from ipubench.fixtures.data.images import on_gpu
    from ipubench.fixtures.runtimes.torch.host.classifier import ClassifierStep

    feed = feed_of(tmp_path, batch_size=2, workers=1, task_images=4)
    seen: List[torch.Tensor] = []

    class Network:
        engine = SimpleNamespace(name="compile", uploads=True, candidates={})
        dtype = torch.float16
        flops_per_image = weight_bytes = None

        def build(self) -> None:
            """Nothing to build."""

        def __call__(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images)
            return images.float().mean(dim=(1, 2, 3))

    monkeypatch.setattr(on_gpu, "choose_decoder", lambda feed: decode if by_gpu else None)
    host: Any = SimpleNamespace(
        torch_device=torch.device("cuda"),
        device=SimpleNamespace(on_cpu=False),
        accelerator=torch.cuda if kind == "cuda" else None,
        synchronise=lambda: None,
        reference=lambda dtype: ReferenceJobs(),
        device_memory=None,
    )
    network: Any = Network()
    step = ClassifierStep(host, network, feed)
    step.build()
    try:
        step()
        halves = ask(step.loading.halves)
        assert halves is not None
        halves[0].run()
        halves[1].run()
        assert step.loading.burst == 2
        assert step.loading.prefetched == (4 + 2 * on_gpu.AHEAD if by_gpu else 4)
    finally:
        step.close()
    assert seen[0].device.type == (kind if by_gpu else "cpu")
    assert step.counters() == ({"decoded_on_host": 2} if by_gpu else {})


def test_the_host_decodes_if_the_gpu_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
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
