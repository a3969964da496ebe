"""The PopTorch runtime: which calls an option becomes, how images reach the IPU, how it ends.

PopTorch is the stand-in of ``tests/doubles``, which runs the networks on the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Dict, Iterator, List

import numpy as np
import pytest

from ipubench.bench_inference.bench_cnn_torch import IPU, POD4
from ipubench.bench_inference.classifier import Classifier
from ipubench.fixtures.data.images.feed import ImageFeed, ImageFolder
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.runtimes.torch import ipu
from ipubench.fixtures.runtimes.torch.ipu import PopTorchIpu
from ipubench.fixtures.runtimes.torch.ipu_options import poptorch_options, split_pipeline
from ipubench.models.torch.classification import build_classifier
from ipubench.models.torch.inputs import OverlappedTransfers
from tests.doubles import poptorch as double
from tests.doubles.poptorch import recorder

pytestmark = pytest.mark.framework

SIZE = 32
ENGINE_OPTIONS = {
    "target.deterministicWorkers": "portable",
    "opt.internalExchangeOptimisationTarget": "cycles",
}
HARDWARE = IpuDevice("ipu", None)
MODEL = IpuDevice("ipu-model", None)
# As the presets: uint8 images, normalised by the network.
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
    return pytest.importorskip("torch")


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


def uploads() -> List[Any]:
    """The tensors that calls of executors were given, in order."""
    return [given["args"][0] for name, given in recorder.calls if name == "PoplarExecutor.__call__"]


# --- options ---------------------------------------------------------------------------------


def test_the_resnet50_preset_becomes_the_original_programs_options(
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
        (
            "_PopartOptions.set",
            {"key": "engineOptions", "value": ENGINE_OPTIONS},
        ),
        ("Options.useIpuModel", {"use_model": False}),
    ]


@pytest.mark.parametrize("config", [*IPU.values(), *POD4.values()], ids=lambda c: c.name)
def test_every_configuration_becomes_options_that_poptorch_takes(
    poptorch: ModuleType, config: Classifier
) -> None:
    poptorch_options(poptorch, config, HARDWARE, feed(config))
    given = dict(recorder.calls)
    assert given["Options.replicationFactor"] == {"replication_factor": max(1, config.ipus)}
    tiles = {"num_tiles": config.num_io_tiles} if config.num_io_tiles else None
    assert given.get("_TensorLocationOptions.numIOTiles") == tiles
    assert ("Options.enableSyntheticData" in given) == (config.data == "synthetic")


@pytest.mark.parametrize(
    ("changes", "device", "call", "arguments"),
    [
        ({}, MODEL, "Options.useIpuModel", {"use_model": True}),
        ({}, IpuDevice("ipu", 3), "Options.useIpuId", {"ipu_id": 3}),
        ({"replicas": 4}, HARDWARE, "Options.replicationFactor", {"replication_factor": 4}),
        (
            {"half_partial": False},
            HARDWARE,
            "_PrecisionOptions.setPartialsType",
            {"dtype": "float32"},
        ),
        ({"data": "synthetic"}, HARDWARE, "Options.enableSyntheticData", {"enabled": True}),
        ({"replicas": 3}, HARDWARE, "Options.autoRoundNumIPUs", {"auto_round_num_ipus": True}),
        (
            {"exchange_memory_target": "memory", "exchange_prefetch": False},
            HARDWARE,
            "_PopartOptions.set",
            {
                "key": "engineOptions",
                "value": {
                    **ENGINE_OPTIONS,
                    "opt.internalExchangeOptimisationTarget": "memory",
                    "exchange.enablePrefetch": "false",
                },
            },
        ),
        ({"num_io_tiles": 64}, HARDWARE, "_TensorLocationOptions.numIOTiles", {"num_tiles": 64}),
        (
            {"norm_type": "group", "enable_fast_groupnorm": True},
            HARDWARE,
            "_PopartOptions.set",
            {"key": "groupNormStridedChannelGrouping", "value": True},
        ),
        (
            {"norm_type": "group"},
            HARDWARE,
            "_PopartOptions.set",
            {"key": "groupNormStridedChannelGrouping", "value": False},
        ),
        (
            {"model_cache_path": "~/models"},
            HARDWARE,
            "Options.enableExecutableCaching",
            {"path": str(Path.home() / "models")},
        ),
        (
            {"compile_only": True, "offline_target_ipu_version": 1},
            HARDWARE,
            "Options.useOfflineIpuTarget",
            {"ipu_version": 1},
        ),
        (
            {"pipeline_splits": ("layer2/0/conv1", "layer3/0/conv1")},
            HARDWARE,
            "Options.autoRoundNumIPUs",
            {"auto_round_num_ipus": True},
        ),
    ],
)
def test_an_option_becomes_a_call(
    poptorch: ModuleType,
    torch: Any,
    changes: Dict[str, Any],
    device: IpuDevice,
    call: str,
    arguments: Dict[str, Any],
) -> None:
    config = dataclasses.replace(SMALL, **changes)
    poptorch_options(poptorch, config, device, feed(config))
    if "dtype" in arguments:
        arguments = {"dtype": getattr(torch, arguments["dtype"])}
    assert (call, arguments) in recorder.calls


@pytest.mark.parametrize(
    ("changes", "device", "absent"),
    [
        ({}, HARDWARE, "Options.useIpuId"),
        ({}, IpuDevice("ipu-model", 3), "Options.useIpuId"),
        ({}, HARDWARE, "Options.enableSyntheticData"),
        ({"replicas": 4}, HARDWARE, "Options.autoRoundNumIPUs"),
        ({}, HARDWARE, "_TensorLocationOptions.numIOTiles"),
        ({}, HARDWARE, "Options.setExecutionStrategy"),
        ({}, HARDWARE, "Options.enableExecutableCaching"),
        ({}, HARDWARE, "Options.useOfflineIpuTarget"),
        ({"compile_only": True}, IpuDevice("ipu", 3), "Options.useIpuId"),
        # The emulator needs no target without hardware.
        ({"compile_only": True}, MODEL, "Options.useOfflineIpuTarget"),
    ],
)
def test_an_option_that_is_not_needed_is_not_given(
    poptorch: ModuleType, changes: Dict[str, Any], device: IpuDevice, absent: str
) -> None:
    config = dataclasses.replace(SMALL, **changes)
    poptorch_options(poptorch, config, device, feed(config))
    assert absent not in recorder.names()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalization_location": "none"}, "eight_bit_io .* normalization_location=device"),
        (
            {"pipeline_splits": ("conv1", "bn1", "relu")},
            r"batches_per_step \(device_iterations\) is 3: a pipeline of 4 stages",
        ),
    ],
)
def test_options_that_cannot_work_together_are_refused(
    poptorch: ModuleType, changes: Dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        step(dataclasses.replace(SMALL, **changes))


def test_a_folder_for_programs_is_refused_where_none_are_kept(
    poptorch: ModuleType, tmp_path: Path
) -> None:
    """Beside programs of hardware that lie there, the software model's looked found again."""
    with pytest.raises(ValueError, match="model_cache_path needs --device=ipu: "):
        step(dataclasses.replace(SMALL, model_cache_path=str(tmp_path)), MODEL)


# --- transfers, compiled models --------------------------------------------------------------


def test_io_tiles_overlap_both_transfers_and_change_no_result(poptorch: ModuleType) -> None:
    config = dataclasses.replace(SMALL, precision="32.32")
    plain = ready(config)
    plain()
    recorder.reset()
    made = ready(dataclasses.replace(config, num_io_tiles=32))
    made()
    mode = double.OverlapMode.OverlapDeviceIterationLoop
    for name in ("set_overlap_for_input", "set_overlap_for_output"):
        assert recorder.arguments(name)["mode"] is mode
    settings = [given for name, given in recorder.calls if name == "_PopartOptions.set"]
    assert {"key": "defaultPrefetchBufferingDepth", "value": 3} in settings
    strategy = recorder.arguments("Options.setExecutionStrategy")["strategy"]
    assert isinstance(strategy, double.ShardedExecution)
    assert made.output.equal(plain.output)
    assert made.describe()["options"]["io_tiles"] == 32
    assert recorder.executors[-1].overlapped


@pytest.mark.parametrize(("iterations", "overlap"), [(1, False), (2, False), (3, True)])
def test_io_tiles_are_refused_where_too_few_iterations_would_not_overlap(
    monkeypatch: pytest.MonkeyPatch, poptorch: ModuleType, iterations: int, overlap: bool
) -> None:
    """The record says that transfers overlap; PopTorch does not say where they do not.

    Sharded execution has no pipeline to fill: four stages may have three iterations.
    """
    config = dataclasses.replace(
        SMALL,
        precision="32.32",
        num_io_tiles=32,
        batches_per_step=iterations,
        pipeline_splits=("conv1", "bn1", "relu"),
    )
    if not overlap:
        with pytest.raises(ValueError, match="overlap with computing from 3 device iterations on"):
            step(config)
        monkeypatch.setattr(ipu, "check_options", lambda *_: None)
    made = ready(config)
    made()
    assert recorder.executors[-1].overlapped is overlap


def test_a_compiled_model_is_found_again(poptorch: ModuleType, tmp_path: Path) -> None:
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


def test_a_damaged_executable_is_removed_and_compiled_anew(
    poptorch: ModuleType, tmp_path: Path
) -> None:
    config = dataclasses.replace(SMALL, precision="32.32", model_cache_path=str(tmp_path))
    ready(config)
    (kept,) = tmp_path.glob("*.popef")
    kept.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=f"{kept.name} is damaged; it is removed"):
        made = ready(config)
    assert not made.model_cache.hit
    assert kept.read_bytes() == b"executable"
    assert ready(config).model_cache.hit


def test_compiling_alone_needs_no_ipu(poptorch: ModuleType) -> None:
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


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("layer1/0/conv9", "layer1/0/conv1"),
        ("layer1.0.conv1", "layer1/0/conv1"),
        ("layer3/0", "layer3/0/conv1"),
        ("", "relu"),
    ],
)
def test_an_unknown_split_names_the_nearest_layers(
    poptorch: ModuleType, name: str, near: str
) -> None:
    with pytest.raises(ValueError, match=f"no layer '{name}'; the nearest names are .*{near}"):
        split_pipeline(poptorch, network(SMALL)(), [name])
    assert "BeginBlock" not in recorder.names()


def test_a_split_given_twice_is_refused(poptorch: ModuleType) -> None:
    with pytest.raises(ValueError, match="'fc' is given twice"):
        split_pipeline(poptorch, network(SMALL)(), ["fc", "fc"])


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
    mean = torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    with torch.no_grad():
        expected = network(config)()((first / 255 - mean) / std)
    torch.testing.assert_close(made.output, expected, rtol=1e-3, atol=1e-3)


def test_half_precision_runs_in_half_precision(poptorch: ModuleType, torch: Any) -> None:
    made = ready(dataclasses.replace(SMALL, precision="16.16"))
    made()
    assert made.output.shape == (6, 1000)
    assert made.output.dtype == torch.half
    assert {p.dtype for p in recorder.executors[0]._model.parameters()} == {torch.half}
    assert made.describe()["precision"] == "float16"


@pytest.mark.parametrize(("precision", "dtype"), [("16.16", "float16"), ("32.32", "float32")])
def test_images_travel_in_the_compute_type_unless_eight_bit(
    poptorch: ModuleType, torch: Any, precision: str, dtype: str
) -> None:
    config = dataclasses.replace(
        SMALL, precision=precision, eight_bit_io=False, normalization_location="none"
    )
    made = ready(config)
    made()
    assert uploads()[0].dtype == getattr(torch, dtype)
    assert uploads()[0].max() == 254


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
    assert made.prefetched_batches == 0
    made.close()


def test_real_images_are_normalised_on_the_host_where_asked(
    poptorch: ModuleType, torch: Any, jpegs: ImageFolder
) -> None:
    config = dataclasses.replace(
        SMALL, data="real", precision="32.32", eight_bit_io=False, normalization_location="host"
    )
    made = ready(config, folder=jpegs)
    made()
    black = uploads()[0][0]
    assert black.dtype == torch.float32
    assert float(black[0].mean()) == pytest.approx(-0.485 / 0.229, abs=0.05)
    made.close()


def test_unreadable_images_are_noted_in_the_cases_feed(
    poptorch: ModuleType, jpegs: ImageFolder
) -> None:
    Path(jpegs.paths[1]).write_bytes(b"no image")
    config = dataclasses.replace(SMALL, data="real", precision="32.32")
    given = feed(config, folder=jpegs)
    made = PopTorchIpu(HARDWARE).inference(network(config), config, given)
    made.build()
    made.compile()
    made()
    made.close()
    assert list(given.corrupt) == [jpegs.paths[1]]


def test_latencies_are_the_means_that_poptorch_reports(poptorch: ModuleType) -> None:
    made = ready(dataclasses.replace(SMALL, precision="32.32"))
    assert made.latencies() == []
    made()
    made()
    assert made.latencies() == [0.002, 0.004]


@pytest.mark.parametrize("variable", ["POPTORCH_CACHE_DIR", "POPART_CACHE_DIR", "POPXL_CACHE_DIR"])
@pytest.mark.parametrize(("device", "kept"), [(HARDWARE, True), (MODEL, False)])
def test_an_exported_folder_may_have_kept_an_ipus_program(
    poptorch: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    device: IpuDevice,
    kept: bool,
) -> None:
    """PopTorch's session begins with PopART's options; neither keeps the software model's."""
    monkeypatch.setenv(variable, "/somewhere")
    made = step(SMALL, device)
    monkeypatch.setattr(made, "_executor", SimpleNamespace(compile=lambda images: None))
    assert made.compile() is not kept
    assert made.not_compiled == "fresh or cached"


def test_the_record_says_what_runs(poptorch: ModuleType) -> None:
    config = dataclasses.replace(SMALL, replicas=2, half_partial=True, pipeline_splits=("fc",))
    made = step(config)
    facts = made.describe()
    assert facts == {
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
    assert json.loads(json.dumps(facts)) == facts
    assert (made.dropped, made.calibrated, made.batches_per_step) == (2, False, 3)
    assert made.canary() is None
    assert made.device_memory() is None


# --- how it begins and ends ------------------------------------------------------------------


def test_without_poptorch_the_error_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "poptorch", None)
    with pytest.raises(DeviceError, match=r"(?s)--device=ipu: .*Poplar SDK.*enable script.*wheel"):
        PopTorchIpu(HARDWARE)


def test_another_torch_than_poptorchs_is_named_with_its_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, torch: Any
) -> None:
    """PopTorch asserts the version when it is imported (poptorch/python/__init__.py)."""
    message = "This version of PopTorch only works with torch==2.0.1"
    (tmp_path / "poptorch.py").write_text(f"raise AssertionError({message!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "poptorch", raising=False)
    with pytest.raises(DeviceError) as caught:
        PopTorchIpu(MODEL)
    words = str(caught.value)
    assert words.startswith(f"--device=ipu-model: PopTorch refuses the torch {torch.__version__} ")
    assert f": {message}; install that one (`pip install torch==VERSION`)" in words


@pytest.mark.parametrize(("device", "hint"), [(HARDWARE, True), (MODEL, False)])
def test_a_device_that_cannot_be_had_is_a_device_error(
    poptorch: ModuleType, device: IpuDevice, hint: bool
) -> None:
    made = step(SMALL, device)
    made.build()
    recorder.attach_error = "Failed to acquire 1 IPU(s)"
    with pytest.raises(DeviceError) as caught:
        made.compile()
    message = str(caught.value)
    assert message.startswith(f"--device={device.kind}: PopTorch could not")
    assert "attach to 1 IPU: Failed to acquire 1 IPU(s)" in message
    assert ("gc-monitor" in message) is hint
    made.close()
    assert recorder.names()[-1] == "PoplarExecutor.destroy"


def test_close_destroys_even_where_the_loader_fails(
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
    assert made.prefetched_batches == 8
    assert recorder.executors[0].isAttachedToDevice()
    with pytest.raises(OSError, match="disk"):
        made()
    with pytest.raises(OSError, match="disk"):
        made.close()
    assert not recorder.executors[0].isAttachedToDevice()


def test_close_is_harmless_before_build_and_twice(poptorch: ModuleType) -> None:
    made = step(SMALL)
    made.close()
    made.build()
    made.close()
    made.close()
    assert recorder.names().count("PoplarExecutor.destroy") == 1


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
    with pytest.raises(AssertionError, match="cannot be divided by 6"):
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


@pytest.mark.parametrize(
    ("option", "value", "message"), [("useIpuModel", True, "IPU Model"), ("useIpuId", 1, "IPU id")]
)
def test_the_stand_in_compiles_offline_for_no_device_of_this_host(
    poptorch: ModuleType, torch: Any, option: str, value: Any, message: str
) -> None:
    given = poptorch.Options().useOfflineIpuTarget(2)
    getattr(given, option)(value)
    with pytest.raises(poptorch.Error, match=f"not supported with .*{message}"):
        poptorch.inferenceModel(torch.nn.Linear(4, 4), given).compile(torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("tiles", "sharded", "message"),
    [(32, False, "PipelinedExecution"), (0, True, "No IO tiles")],
)
def test_the_stand_in_overlaps_only_what_the_sdk_overlaps(
    poptorch: ModuleType, torch: Any, tiles: int, sharded: bool, message: str
) -> None:
    options = poptorch.Options()
    if tiles:
        options.TensorLocations.numIOTiles(tiles)
    if sharded:
        options.setExecutionStrategy(poptorch.ShardedExecution())
    network = OverlappedTransfers(torch.nn.Linear(4, 4), poptorch)
    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(network, options)(torch.zeros(3, 4))
