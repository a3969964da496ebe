"""The PopTorch runtime: the calls for each option, how images reach the IPU, the cleanup.

PopTorch is the stand-in of ``tests/doubles``, which runs the networks on the CPU.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_torch import IPU, POD4
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.data.images.feed import ImageFeed, ImageFolder
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.ipu import IpuDevice, IpuModelDevice
from ipubench.fixtures.runtimes.step import ReferenceJobs
from ipubench.fixtures.runtimes.torch.ipu.poptorch_ipu import PopTorchIpu
from ipubench.fixtures.runtimes.torch.ipu.poptorch_options import poptorch_options, split_pipeline
from ipubench.models.torch.classification import build_classifier
from ipubench.models.torch.inputs import OverlappedTransfers
from tests.doubles import poptorch as double
from tests.doubles.poptorch import recorder
from tests.support.threads import torch_on_one_thread

pytestmark = pytest.mark.framework

SIZE = 32
ENGINE_OPTIONS = {
    "target.deterministicWorkers": "portable",
    "opt.internalExchangeOptimisationTarget": "cycles",
}
HARDWARE = IpuDevice()
MODEL = IpuModelDevice()
# As in the presets: uint8 images that the network normalises.
SMALL = Classifier(
    name="small",
    system="ipu",
    data="generated",
    model="resnet18",
    random_weights=True,
    micro_batch_size=2,
    batches_per_step=3,
    eight_bit_io=True,
    normalization_location="device",
)


@pytest.fixture
def torch() -> Any:
    return torch_on_one_thread()


@pytest.fixture
def poptorch(monkeypatch: pytest.MonkeyPatch, torch: Any) -> ModuleType:
    module = double.as_module()
    monkeypatch.setitem(sys.modules, "poptorch", module)
    return module


def feed(config: Classifier, **changes: Any) -> ImageFeed:
    options: Dict[str, Any] = {
        "mode": config.data,
        "batch_size": config.micro_batch_size,
        "image_size": SIZE,
        "eight_bit": config.eight_bit_io,
        "normalization": config.normalization_location,
    }
    return ImageFeed(**{**options, **changes})


def network(config: Classifier) -> Any:
    return partial(build_classifier, config.model, random_weights=True)


def step(config: Classifier, device: IpuDevice = HARDWARE, **changes: Any) -> Any:
    return PopTorchIpu(device).inference(network(config), config, feed(config, **changes))


def ready(config: Classifier, device: IpuDevice = HARDWARE, **changes: Any) -> Any:
    made = step(config, device, **changes)
    made.build()
    made.compile()
    return made


def popart_option(key: str, value: Any) -> Any:
    return "_PopartOptions.set", {"key": key, "value": value}


def uploads() -> List[Any]:
    """The tensors of all calls of executors, in order."""
    return [given["args"][0] for name, given in recorder.calls if name == "PoplarExecutor.__call__"]


def normalised(torch: Any, images: Any) -> Any:
    mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    return (images / 255 - mean) / std


# --- options ---------------------------------------------------------------------------------


def test_the_resnet50_preset_gives_the_original_programs_options(
    poptorch: ModuleType, torch: Any
) -> None:
    config = dataclasses.replace(IPU["resnet50"], data="generated")
    assert config.micro_batch_size == 90
    poptorch_options(poptorch, config, HARDWARE, feed(config))
    assert recorder.calls == [
        ("Options.__init__", {}),
        ("Options.replicationFactor", {"replication_factor": 1}),
        ("Options.deviceIterations", {"device_iterations": 128}),
        ("Options.outputMode", {"output_mode": double.OutputMode.All}),
        ("_PrecisionOptions.setPartialsType", {"dtype": torch.half}),
        popart_option("engineOptions", ENGINE_OPTIONS),
        ("Options.useIpuModel", {"use_model": False}),
    ]


@pytest.mark.parametrize("config", [*IPU.values(), *POD4.values()], ids=lambda c: c.name)
def test_every_configuration_gives_options_that_poptorch_accepts(
    poptorch: ModuleType, config: Classifier
) -> None:
    poptorch_options(poptorch, config, HARDWARE, feed(config))
    given = dict(recorder.calls)
    assert given["Options.replicationFactor"] == {"replication_factor": max(1, config.ipus)}
    tiles = {"num_tiles": config.num_io_tiles} if config.num_io_tiles else None
    assert given.get("_TensorLocationOptions.numIOTiles") == tiles
    assert ("Options.enableSyntheticData" in given) == (config.data == "synthetic")


@pytest.mark.parametrize(
    ("changes", "device", "calls"),
    [
        ({}, MODEL, [("Options.useIpuModel", {"use_model": True})]),
        ({}, IpuDevice(3), [("Options.useIpuId", {"ipu_id": 3})]),
        ({}, IpuModelDevice(3), [("Options.useIpuModel", {"use_model": True})]),
        ({"replicas": 4}, HARDWARE, [("Options.replicationFactor", {"replication_factor": 4})]),
        (
            {"replicas": 3},
            HARDWARE,
            [
                ("Options.replicationFactor", {"replication_factor": 3}),
                ("Options.autoRoundNumIPUs", {"auto_round_num_ipus": True}),
            ],
        ),
        (
            {"pipeline_splits": ("layer2/0/conv1", "layer3/0/conv1")},
            HARDWARE,
            [("Options.autoRoundNumIPUs", {"auto_round_num_ipus": True})],
        ),
        ({"data": "synthetic"}, HARDWARE, [("Options.enableSyntheticData", {"enabled": True})]),
        (
            {"exchange_memory_target": "memory", "exchange_prefetch": False},
            HARDWARE,
            [
                popart_option(
                    "engineOptions",
                    {
                        **ENGINE_OPTIONS,
                        "opt.internalExchangeOptimisationTarget": "memory",
                        "exchange.enablePrefetch": "false",
                    },
                )
            ],
        ),
        (
            {"norm_type": "group", "enable_fast_groupnorm": True},
            HARDWARE,
            [popart_option("groupNormStridedChannelGrouping", True)],
        ),
        (
            {"norm_type": "group"},
            HARDWARE,
            [popart_option("groupNormStridedChannelGrouping", False)],
        ),
        (
            {"model_cache_path": "~/models"},
            HARDWARE,
            [("Options.enableExecutableCaching", {"path": str(Path.home() / "models")})],
        ),
        (
            {"compile_only": True, "offline_target_ipu_version": 1},
            IpuDevice(3),
            [("Options.useOfflineIpuTarget", {"ipu_version": 1})],
        ),
        # The emulator needs no target without hardware.
        ({"compile_only": True}, MODEL, [("Options.useIpuModel", {"use_model": True})]),
    ],
)
def test_an_option_makes_one_call(
    poptorch: ModuleType, torch: Any, changes: Dict[str, Any], device: IpuDevice, calls: List[Any]
) -> None:
    poptorch_options(poptorch, SMALL, HARDWARE, feed(SMALL))
    usual = list(recorder.calls)
    assert recorder.arguments("_PrecisionOptions.setPartialsType") == {"dtype": torch.float}
    recorder.reset()
    config = dataclasses.replace(SMALL, **changes)
    poptorch_options(poptorch, config, device, feed(config))
    assert [call for call in recorder.calls if call not in usual] == calls


@pytest.mark.parametrize(
    ("changes", "device", "name"),
    [
        ({"normalization_location": "none"}, HARDWARE, "eight_bit_io"),
        ({"pipeline_splits": ("conv1", "bn1", "relu")}, HARDWARE, "a pipeline of 4 stages"),
        # Sharded execution has no pipeline to fill, but transfers overlap from 3 iterations on.
        ({"num_io_tiles": 32, "batches_per_step": 2}, HARDWARE, "num_io_tiles"),
        # Programs for hardware in this folder would be mistaken for the software model's.
        ({"model_cache_path": "kept"}, MODEL, "model_cache_path"),
    ],
)
def test_unworkable_options_are_refused(
    poptorch: ModuleType, changes: Dict[str, Any], device: IpuDevice, name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        step(dataclasses.replace(SMALL, **changes), device)


# --- transfers, compiled models --------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({}, double.OverlapMode.OverlapAccumulationLoop),  # the original's
        ({"io_overlap": "device_iterations"}, double.OverlapMode.OverlapDeviceIterationLoop),
    ],
)
def test_io_tiles_overlap_both_transfers_and_change_no_result(
    poptorch: ModuleType, changes: Dict[str, Any], mode: double.OverlapMode
) -> None:
    config = dataclasses.replace(SMALL, precision="32.32", **changes)
    plain = ready(config)
    plain()
    recorder.reset()
    splits = ("conv1", "bn1", "relu")
    made = ready(dataclasses.replace(config, num_io_tiles=32, pipeline_splits=splits))
    made()
    for name in ("set_overlap_for_input", "set_overlap_for_output"):
        assert recorder.arguments(name)["mode"] is mode
    settings = [given for name, given in recorder.calls if name == "_PopartOptions.set"]
    assert {"key": "defaultPrefetchBufferingDepth", "value": 3} in settings
    strategy = recorder.arguments("Options.setExecutionStrategy")["strategy"]
    assert isinstance(strategy, double.ShardedExecution)
    assert made.output.equal(plain.output)
    options = made.describe()["options"]
    assert (options["io_tiles"], options["io_overlap"]) == (32, config.io_overlap)
    assert "io_overlap" not in plain.describe()["options"]
    assert recorder.executors[-1].overlapped


def test_a_compiled_model_is_reused(poptorch: ModuleType, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, precision="32.32", model_cache_path=str(tmp_path))
    first = ready(config)
    assert not first.model_cache.hit
    assert first.model_cache.note(50.0) is None
    again = ready(config)
    assert again.model_cache.hit
    assert again.model_cache.note(2.0) == 48.0
    # Records with and without it may be compared.
    assert again.describe() == step(dataclasses.replace(config, model_cache_path="")).describe()
    other = ready(dataclasses.replace(config, micro_batch_size=4))
    assert not other.model_cache.hit


def test_compile_only_needs_no_ipu(poptorch: ModuleType) -> None:
    recorder.attach_error = "Failed to acquire 1 IPU(s)"
    ready(dataclasses.replace(SMALL, compile_only=True))
    assert not recorder.executors[0].isAttachedToDevice()


# --- pipeline --------------------------------------------------------------------------------


def test_splits_start_the_next_ipus_in_order(poptorch: ModuleType) -> None:
    splits = ("layer2/0/conv1", "layer4/0/conv1")
    config = dataclasses.replace(SMALL, pipeline_splits=splits)
    made = ready(config)
    executor = recorder.executors[0]
    layers = dict(executor._model.network.named_modules())
    blocks = [given for name, given in recorder.calls if name == "BeginBlock"]
    assert [(given["layer_to_call"], given["ipu_id"]) for given in blocks] == [
        (layers["layer2.0.conv1"], 1),
        (layers["layer4.0.conv1"], 2),
    ]
    made()
    assert recorder.stages == [1, 2]
    assert made.describe()["ipus"] == 3
    assert made.describe()["options"]["round_up_ipus"] is True


def test_an_unknown_split_names_the_nearest_layers(poptorch: ModuleType) -> None:
    module = network(SMALL)()
    for name, near in (
        ("layer1/0/conv9", "layer1/0/conv1"),
        ("layer1.0.conv1", "layer1/0/conv1"),
        ("layer3/0", "layer3/0/conv1"),
        ("", "relu"),
    ):
        with pytest.raises(ValueError, match=f"'{name}'.* {near}"):
            split_pipeline(poptorch, module, [name])
    assert "BeginBlock" not in recorder.names()


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_hardswish_is_the_originals_product(poptorch: ModuleType, torch: Any) -> None:
    """PopTorch would make seven operations of PyTorch's own (graphcore/poptorch, ActivationOps)."""
    splits = ("mb_block/4/seq/2",)  # a Hardswish
    config = dataclasses.replace(
        SMALL, model="mobilenet-v3-small", precision="32.32", pipeline_splits=splits
    )
    made = ready(config)
    made()
    (images,) = uploads()
    original = network(config)()
    with torch.no_grad():
        expected = original(normalised(torch, images))
    torch.testing.assert_close(made.output, expected, rtol=1e-3, atol=1e-3)
    graph = str(torch.jit.trace(recorder.executors[0]._model, images).inlined_graph)
    swishes = sum(isinstance(layer, torch.nn.Hardswish) for layer in original.modules())
    gates = sum(isinstance(layer, torch.nn.Hardsigmoid) for layer in original.modules())
    assert (graph.count("hardswish"), graph.count("aten::hardsigmoid(")) == (0, swishes + gates)


# --- images and results ----------------------------------------------------------------------


def test_a_generated_batch_is_the_fixed_tensor_every_time(poptorch: ModuleType, torch: Any) -> None:
    config = dataclasses.replace(SMALL, precision="32.32", replicas=2)
    made = ready(config)
    made()
    made()
    first, second = uploads()
    assert first is second
    assert first.dtype == torch.uint8
    assert torch.equal(first, torch.from_numpy(feed(config, batch_size=4).generated(3)))
    with torch.no_grad():
        expected = network(config)()(normalised(torch, first))
    torch.testing.assert_close(made.output, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("precision", "dtype"), [("16.16", "float16"), ("32.32", "float32")])
def test_images_are_sent_and_classified_in_the_compute_type_unless_eight_bit(
    poptorch: ModuleType, torch: Any, precision: str, dtype: str
) -> None:
    config = dataclasses.replace(
        SMALL, precision=precision, eight_bit_io=False, normalization_location="none"
    )
    made = ready(config)
    made()
    kind = getattr(torch, dtype)
    assert (uploads()[0].dtype, uploads()[0].max()) == (kind, 254)
    assert (made.output.shape, made.output.dtype) == ((6, 1000), kind)
    assert {p.dtype for p in recorder.executors[0]._model.parameters()} == {kind}
    assert made.describe()["precision"] == dtype


def test_synthetic_data_is_made_on_the_ipu(poptorch: ModuleType) -> None:
    made = ready(dataclasses.replace(SMALL, data="synthetic", precision="32.32"))
    made()
    assert recorder.arguments("Options.enableSyntheticData") == {"enabled": True}
    assert uploads()[0].shape == (6, 3, SIZE, SIZE)
    assert made.output.shape == (6, 1000)
    assert made.latencies() == []


@pytest.fixture
def jpegs(tmp_path: Path) -> ImageFolder:
    image = pytest.importorskip("PIL.Image")
    paths = []
    for index in range(5):
        path = tmp_path / f"{index}.jpg"
        pixels = np.full((40, 50, 3), 40 * index, dtype=np.uint8)
        image.fromarray(pixels).save(path)
        paths.append(str(path))
    return ImageFolder(str(tmp_path), tuple(paths))


def shades(images: Any) -> List[int]:
    """What identifies the images of ``jpegs``: the grey value over 40."""
    return [round(float(image.float().mean()) / 40) for image in images]


def test_real_images_fill_every_device_iteration(poptorch: ModuleType, jpegs: ImageFolder) -> None:
    config = dataclasses.replace(SMALL, data="real", precision="32.32", replicas=2)
    made = ready(config, folder=jpegs)
    uploaded: List[List[int]] = []
    executor = recorder.executors[0]
    executor._model.register_forward_pre_hook(lambda _, given: uploaded.append(shades(given[0])))
    made()
    made()
    cycle = [index % 5 for index in range(24)]
    assert uploaded == [cycle[:12], cycle[12:]]
    assert made.output.shape == (12, 1000)
    assert made.loading.prefetched == 0
    made.close()


def test_real_images_are_normalised_on_the_host_and_unreadable_ones_are_recorded(
    poptorch: ModuleType, torch: Any, jpegs: ImageFolder
) -> None:
    config = dataclasses.replace(
        SMALL, data="real", precision="32.32", eight_bit_io=False, normalization_location="host"
    )
    Path(jpegs.paths[1]).write_bytes(b"no image")
    given = feed(config, folder=jpegs)
    made = PopTorchIpu(HARDWARE).inference(network(config), config, given)
    made.build()
    made.compile()
    made()
    black = uploads()[0][0]
    assert black.dtype == torch.float32
    assert float(black[0].mean()) == pytest.approx(-0.485 / 0.229, abs=0.05)
    made.close()
    assert list(given.corrupt) == [jpegs.paths[1]]


def test_latencies_are_poptorchs_means(poptorch: ModuleType) -> None:
    made = ready(dataclasses.replace(SMALL, precision="32.32"))
    assert made.latencies() == []
    made()
    made()
    assert made.latencies() == [0.002, 0.004]


@pytest.mark.parametrize("variable", ["POPTORCH_CACHE_DIR", "POPART_CACHE_DIR", "POPXL_CACHE_DIR"])
@pytest.mark.parametrize(("device", "kept"), [(HARDWARE, True), (MODEL, False)])
def test_the_cache_folder_may_contain_an_ipu_program(
    poptorch: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
    device: IpuDevice,
    kept: bool,
) -> None:
    """PopTorch's session begins with PopART's options; neither keeps the software model's."""
    monkeypatch.setenv(variable, str(tmp_path))
    for expected in (True, not kept):
        made = step(dataclasses.replace(SMALL, precision="32.32"), device)
        made.build()
        assert made.compile() is expected
        made.close()
    assert made.not_compiled == "fresh or cached"


def test_the_record_describes_the_execution(poptorch: ModuleType) -> None:
    config = dataclasses.replace(SMALL, replicas=2, half_partial=True, pipeline_splits=("fc",))
    made = step(config)
    assert made.describe() == {
        "engine": "poptorch",
        "precision": "float16",
        "partials": "float16",
        "ipus": 4,
        "device_iterations": 3,
        "options": {
            "replication_factor": 2,
            "pipeline_splits": ["fc"],
            "round_up_ipus": False,
            "synthetic_data": False,
            "engine_options": ENGINE_OPTIONS,
            "io_tiles": 0,
        },
    }
    assert (made.rounds.dropped, made.rounds.calibrated, made.batches_per_step) == (2, False, 3)
    assert made.reference == ReferenceJobs()
    assert made.device_memory is None


# --- start and end ---------------------------------------------------------------------------


def test_without_poptorch_the_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "poptorch", None)
    with pytest.raises(DeviceError, match="Poplar SDK"):
        PopTorchIpu(HARDWARE)


def test_a_torch_version_that_poptorch_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, torch: Any
) -> None:
    """PopTorch asserts the version when it is imported (poptorch/python/__init__.py)."""
    message = "This version of PopTorch only works with torch==2.0.1"
    (tmp_path / "poptorch.py").write_text(f"raise AssertionError({message!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "poptorch", raising=False)
    with pytest.raises(DeviceError, match=rf"{re.escape(torch.__version__)} .*{message}"):
        PopTorchIpu(MODEL)


@pytest.mark.parametrize(("device", "hint"), [(HARDWARE, True), (MODEL, False)])
def test_an_unavailable_device_is_a_device_error(
    poptorch: ModuleType, device: IpuDevice, hint: bool
) -> None:
    made = step(SMALL, device)
    made.close()
    made.build()
    recorder.attach_error = "Failed to acquire 1 IPU(s)"
    with pytest.raises(DeviceError) as caught:
        made.compile()
    assert "Failed to acquire 1 IPU(s)" in str(caught.value)
    assert ("gc-monitor" in str(caught.value)) is hint
    made.close()
    made.close()
    assert recorder.names()[-1] == "PoplarExecutor.destroy"
    assert recorder.names().count("PoplarExecutor.destroy") == 1


def test_close_destroys_the_model_even_if_the_loader_fails(
    poptorch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Batches(Iterator[Any]):
        def __next__(self) -> Any:
            raise OSError("the disk is gone")

        def close(self) -> None:
            raise OSError("the disk is gone")

    loader = ModuleType("ipubench.fixtures.data.images.loader")
    loader.image_batches = lambda feed: Batches()  # type: ignore[attr-defined]
    loader.prefetched_batches = lambda feed: 8  # type: ignore[attr-defined]
    loader.prepare_loading = lambda feed: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipubench.fixtures.data.images.loader", loader)
    made = ready(dataclasses.replace(SMALL, data="real"))
    assert made.loading.prefetched == 8
    assert recorder.executors[0].isAttachedToDevice()
    with pytest.raises(OSError, match="disk"):
        made()
    with pytest.raises(OSError, match="disk"):
        made.close()
    assert not recorder.executors[0].isAttachedToDevice()


# --- the stand-in ----------------------------------------------------------------------------


def test_the_stand_in_refuses_what_the_sdk_refuses(poptorch: ModuleType, torch: Any) -> None:
    options = poptorch.Options()
    with pytest.raises(TypeError):
        options.deviceIterations(1, 2)
    with pytest.raises(TypeError):
        options.deviceIterations(iterations=1)
    with pytest.raises(AttributeError):
        options.deviceIteration(1)
    with pytest.raises(AttributeError):
        options.device_iterations = 1
    with pytest.raises(AttributeError):
        _ = poptorch.recorder
    with pytest.raises(AssertionError):
        options.useIpuId("0")
    with pytest.raises(ValueError, match=r"torch\.float or torch\.half"):
        options.Precision.setPartialsType(torch.bfloat16)

    def six() -> Any:
        return poptorch.Options().deviceIterations(2).replicationFactor(3)

    layer = torch.nn.Linear(4, 4)
    given = six()
    with pytest.raises(poptorch.Error, match="power of 2"):
        poptorch.inferenceModel(layer, given).compile(torch.zeros(6, 4))
    with pytest.raises(AttributeError, match="frozen"):
        given.autoRoundNumIPUs()
    executor = poptorch.inferenceModel(layer, six().autoRoundNumIPUs())
    with pytest.raises(AssertionError, match="divided by 6"):
        executor.compile(torch.zeros(4, 4))
    with pytest.raises(poptorch.Error, match="requires_grad"):
        executor.compile(torch.zeros(6, 4, requires_grad=True))
    assert executor(torch.zeros(6, 4)).shape == (6, 4)
    for other in (torch.zeros(12, 4), torch.zeros(6, 4).half()):
        with pytest.raises(poptorch.Error, match="compiled for"):
            executor(other)
    executor.destroy()
    with pytest.raises(poptorch.Error, match="destroyed"):
        executor(torch.zeros(6, 4))
    poptorch.BeginBlock(layer, ipu_id=2)
    with pytest.raises(poptorch.Error, match=r"pipeline stages \(3\)"):
        poptorch.inferenceModel(layer, six().autoRoundNumIPUs()).compile(torch.zeros(6, 4))
    offline = poptorch.Options()
    offline.useOfflineIpuTarget(2)
    with pytest.raises(AssertionError, match="offline"):
        poptorch.inferenceModel(layer, offline)(torch.zeros(6, 4))


def test_the_stand_in_has_64_ipus(poptorch: ModuleType, torch: Any) -> None:
    layer = torch.nn.Linear(4, 4)
    for replicas, most in ((64, True), (128, False)):
        given = poptorch.Options().replicationFactor(replicas)
        executor = poptorch.inferenceModel(layer, given)
        if most:
            executor.compile(torch.zeros(replicas, 4))
            continue
        with pytest.raises(poptorch.Error, match="128 IPUs: at most 64"):
            executor.compile(torch.zeros(replicas, 4))


def test_the_stand_in_compiles_offline_for_no_device_of_this_host(
    poptorch: ModuleType, torch: Any
) -> None:
    for option, value in (("useIpuModel", True), ("useIpuId", 1)):
        given = poptorch.Options().useOfflineIpuTarget(2)
        getattr(given, option)(value)
        with pytest.raises(poptorch.Error, match="not supported"):
            poptorch.inferenceModel(torch.nn.Linear(4, 4), given).compile(torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("tiles", "sharded", "iterations", "error"),
    [
        (32, False, 3, "PipelinedExecution"),
        (0, True, 3, "No IO tiles"),
        (32, True, 2, ""),
        (32, True, 3, ""),
    ],
)
def test_the_stand_in_overlaps_only_what_the_sdk_overlaps(
    poptorch: ModuleType, torch: Any, tiles: int, sharded: bool, iterations: int, error: str
) -> None:
    options = poptorch.Options().deviceIterations(iterations)
    if tiles:
        options.TensorLocations.numIOTiles(tiles)
    if sharded:
        options.setExecutionStrategy(poptorch.ShardedExecution())
    mode = double.OverlapMode.OverlapAccumulationLoop
    network = OverlappedTransfers(torch.nn.Linear(4, 4), poptorch, mode)
    executor = poptorch.inferenceModel(network, options)
    if error:
        with pytest.raises(poptorch.Error, match=error):
            executor(torch.zeros(iterations, 4))
    else:
        executor(torch.zeros(iterations, 4))
        assert executor.overlapped is (iterations >= 3)
