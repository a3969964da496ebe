"""What is written for a server, and what a given repository must have."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
from PIL import Image

from ipubench.bench_inference.bench_triton import HOST, IPU, TritonClassifier
from ipubench.fixtures.case.cases import effective_options
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.images.feed import ImageFeed, find_images
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.cuda import CudaDevice
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.machine.loopback import ALLOCATOR, tuned
from ipubench.fixtures.servers.images import RequestImages, decoded
from ipubench.fixtures.servers.options import LOAD_OPTIONS
from ipubench.fixtures.servers.triton import installation as triton_installation
from ipubench.fixtures.servers.triton.classifiers import HostClassifier
from ipubench.fixtures.servers.triton.installation import (
    Installation,
    check_reach,
    find_installation,
    link_backend,
    options_of,
    server_environment,
)
from ipubench.fixtures.servers.triton.network import describe_network
from ipubench.fixtures.servers.triton.poplar_classifier import PoplarClassifier
from ipubench.fixtures.servers.triton.repository import check_repository, link_models
from ipubench.fixtures.servers.triton.runtime import TritonRuntime
from ipubench.fixtures.servers.triton.server import TritonServer
from ipubench.fixtures.servers.triton.step import TritonStep

# The numbers of the original program's configurations.
ORIGINAL = {
    "resnet50": (90, 11520, 224),
    "efficientnet-b0": (49, 6272, 224),
    "efficientnet-b4": (12, 1536, 380),
}


def parsed(text: str) -> Dict[str, Any]:
    """Read config.pbtxt with Triton's own definition of it."""
    reason = "needs tritonclient: make setup installs it"
    definition = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason=reason)
    from google.protobuf import json_format, text_format

    config = text_format.Parse(text, definition.ModelConfig())
    found: Dict[str, Any] = json_format.MessageToDict(config, preserving_proto_field_name=True)
    return found


@pytest.mark.framework
@pytest.mark.parametrize("name", ORIGINAL)
def test_the_poplar_backend_gets_the_original_settings(name: str) -> None:
    micro_batch, largest, size = ORIGINAL[name]
    assert (IPU[name].system, IPU[name].micro_batch_size) == ("pod4", micro_batch)
    assert IPU[name].popef_iterations == 1
    config = dataclasses.replace(IPU[name], popef_iterations=128)
    feed = ImageFeed("real", micro_batch, config.image_size)
    classifier = PoplarClassifier(IpuDevice("ipu", None), config.network(), config, feed)
    assert parsed(classifier.model({}).config()) == {
        "name": name,
        "backend": "poplar",
        "max_batch_size": largest,
        "input": [
            {"name": "input_0", "data_type": "TYPE_UINT8", "dims": ["3", str(size), str(size)]}
        ],
        "output": [{"name": "output_0", "data_type": "TYPE_FP16", "dims": ["1000"]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {
            "synchronous_execution": {"string_value": "1"},
            "timeout_ns": {"string_value": "500000"},
        },
    }  # fmt: skip


@pytest.mark.framework
def test_a_hosts_model_carries_its_network_through_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server runs in another folder, where a relative path would lead elsewhere."""
    weights = tmp_path / 'odd "name" \\ ü.pth'
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(HOST["resnet50"], micro_batch_size=3, weights=weights.name)
    feed = ImageFeed("real", 3, config.image_size)
    model = HostClassifier(CpuDevice(), config.network(), config, feed).model()
    found = parsed(model.config())
    assert (found["backend"], found["max_batch_size"]) == ("python", 3)
    assert found["output"][0]["data_type"] == "TYPE_FP32"
    network = json.loads(found["parameters"]["network"]["string_value"])
    assert (network["model"], network["shape"]) == ("resnet50", [3, 3, 224, 224])
    assert network["keywords"]["weights"] == str(weights)
    assert network["keywords"]["norm"]["kind"] == "batch"
    version = model.write(tmp_path / "repository")
    assert {path.name for path in version.iterdir()} == {"model.py"}


def test_a_network_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="no partial call of build_classifier"):
        describe_network(
            lambda: None,
            engine="auto",
            shape=(1, 3, 8, 8),
            dtype="float32",
            device="cpu",
            threads=1,
        )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            [],
            "no such directory: .*repository; name a model_repository that holds net/config.pbtxt",
        ),
        (["other/config.pbtxt"], "has no model net; it has other"),
        (["file"], "has no model net; it has no model at all"),
    ],
)
def test_a_repository_that_cannot_be_used_is_refused(
    made: List[str], message: str, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    for name in made:
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with pytest.raises(CaseError, match=message):
        check_repository(repository, "net")
    too_long = tmp_path / ("x" * 300)
    with pytest.raises(CaseError, match="cannot read .*: File name too long; name a model_repo"):
        check_repository(too_long, "net")


def test_a_server_gets_the_model_of_a_repository_and_those_that_its_ensemble_names(
    tmp_path: Path,
) -> None:
    given = tmp_path / "given"
    texts = {
        "net": """step [ { model_name: 'first' }, { model_name: "last" } ] # model_name: "old" """,
        "first": 'step [ { model_name: "part" }, { model_name: "net" } ]',
        "last": 'backend: "python"',
        "part": 'step [ { model_name: "missing" }, { model_name: "without-configuration" } ]',
        "old": "",
        "other": "",
    }
    for name, text in texts.items():
        (given / name / "1").mkdir(parents=True)
        (given / name / "config.pbtxt").write_text(text)
    (given / "without-configuration" / "1").mkdir(parents=True)
    link_models(given, "net", tmp_path / "served")
    found = {path.name: path.resolve() for path in (tmp_path / "served").iterdir()}
    served = ("net", "first", "last", "part", "without-configuration")
    assert found == {name: given / name for name in served}


def test_clients_have_requests_of_their_own(tmp_path: Path) -> None:
    images = RequestImages(ImageFeed("generated", 2, 32), clients=3)
    assert images.images.shape == (2, 3, 32, 32)
    entries = images.write(tmp_path / "images.npy")
    assert [entry["first"] for entry in entries] == [0, 200, 400]
    assert {entry["requests"] for entry in entries} == {100}
    # 90 images of 380 pixels are 39 MB: all requests together stay within 256 MiB.
    large = RequestImages(ImageFeed("generated", 90, 380), clients=2)
    assert large.requests_each == 3
    with pytest.raises(CaseError, match="a request would have 2.10 GiB, .* smaller micro_batch_s"):
        RequestImages(ImageFeed("generated", 15000, 224), clients=1)


def test_requests_that_cannot_be_written_are_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NumPy says it of a full disk."""

    def full(*_: Any) -> None:
        raise OSError("9633792 requested and 2097024 written")

    monkeypatch.setattr("numpy.save", full)
    runtime = TritonRuntime(CpuDevice(), tmp_path, tuned=False)
    config, feed = HOST["resnet50"], ImageFeed("generated", 1, 32)
    try:
        with pytest.raises(CaseError, match="no temporary file of requests .* written; make room"):
            TritonStep(runtime, config, feed).build()
    finally:
        runtime.close()


def test_requests_carry_the_next_images_in_place_of_unreadable_ones(tmp_path: Path) -> None:
    for index in range(6):
        Image.new("RGB", (40, 40), (40 * index,) * 3).save(tmp_path / f"{index}.png")
    for index in (0, 2, 3):
        (tmp_path / f"{index}.png").write_bytes(b"no image")
    feed = ImageFeed("real", 1, 32, folder=find_images(tmp_path), workers=2)
    assert [int(image.max()) for image in decoded(feed, 2)] == [40, 160]
    assert [Path(path).name for path in feed.corrupt] == ["0.png", "2.png", "3.png"]
    assert len(decoded(feed, 100)) == 3


# Counts the page faults of buffers that glibc maps anew each time unless it is told to keep them.
FAULTS = """
import resource
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    bytearray(64 << 20)
before = faults()
for _ in range(10):
    bytes(bytearray(64 << 20))
print(faults() - before)
"""


def test_other_processes_use_memory_as_the_measuring_process_does() -> None:
    assert ALLOCATOR == {
        "mmap_threshold": 1 << 30,
        "trim_threshold": (1 << 31) - 1,
    }
    faults = [
        int(
            subprocess.run(
                [sys.executable, "-c", FAULTS], env=environ, stdout=subprocess.PIPE, check=True
            ).stdout
        )
        for environ in (dict(os.environ), tuned(os.environ))
    ]
    assert faults[1] < faults[0] / 10


def test_a_server_may_lie_in_the_root_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    found = find_installation({"TRITON_SERVER": "/tritonserver"})
    assert found.backends == Path("/backends")


def test_the_environment_of_a_server_keeps_what_was_exported(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    installation = find_installation({"TRITON_SERVER": str(program)})
    assert (installation.server, installation.backends) == (program, tmp_path / "backends")
    named = {"TRITON_SERVER": str(program), "TRITON_BACKENDS": "~/backends"}
    assert find_installation(named).backends == Path.home() / "backends"
    exported = {"LD_LIBRARY_PATH": "/x", "GLIBC_TUNABLES": "glibc.a=1", "HOME": "/home"}
    device = CpuDevice()
    device.threads = 3
    made = server_environment(exported, installation, device, tuned=True)
    assert made["HOME"] == "/home" and made["OMP_NUM_THREADS"] == "3"
    assert made["LD_LIBRARY_PATH"].endswith(":/x")
    assert made["GLIBC_TUNABLES"].startswith("glibc.a=1:glibc.malloc.mmap_threshold=1073741824:")
    assert "GLIBC_TUNABLES" not in server_environment({}, installation, device, tuned=False)
    assert "CUDA_VISIBLE_DEVICES" not in made
    shown = {"CUDA_VISIBLE_DEVICES": "4,GPU-5"}
    made = server_environment(shown, installation, CudaDevice(1), tuned=False)
    assert (made["CUDA_VISIBLE_DEVICES"], made["NVIDIA_TF32_OVERRIDE"]) == ("GPU-5", "0")


def test_a_server_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CaseError, match="TRITON_SERVER=/nowhere is no program that can be run"):
        find_installation({"TRITON_SERVER": "/nowhere"})
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    installation = find_installation({"TRITON_SERVER": str(program)})
    # The last cannot even be looked at.
    for number, backends in enumerate((installation.backends, tmp_path / ("x" * 300))):
        where = dataclasses.replace(installation, backends=backends)
        with pytest.raises(CaseError, match="no backend python in .*; set TRITON_BACKENDS"):
            link_backend("python", where, tmp_path / str(number), {})
    (installation.backends / "python").mkdir(parents=True)

    def secret(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", secret)
    with pytest.raises(
        CaseError, match="cannot read .*/python: Permission .*; set TRITON_BACKENDS"
    ):
        link_backend("python", installation, tmp_path / "made", {})


def test_a_temporary_folder_that_the_python_backend_cannot_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tritonserver"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("TRITON_SERVER", str(program))
    (tmp_path / "rock&roll").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "rock&roll"))
    server = TritonServer(tmp_path, "tiny", "python", tmp_path / "log", device=CpuDevice())
    with pytest.raises(
        CaseError, match=r"cannot start below .*rock&roll: .* take '&' for .*TMPDIR"
    ):
        server.new_process()
    assert not list((tmp_path / "rock&roll").iterdir())


# What servers print for --help, less the meanings; r21.05 is built with gRPC alone.
OLD = "model-repository backend-directory model-control-mode grpc-port exit-timeout-secs"
NEW = f"{OLD} grpc-address allow-http allow-metrics grpc-restricted-protocol"
NEW += " disable-auto-complete-config"


def server_that_knows(folder: Path, options: str) -> Installation:
    """Return a program that prints its options as a server does, and ends with 1."""
    program = folder / "tritonserver"
    lines = "\n".join(f"  --{name} <string>" for name in options.split())
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\nUsage: tritonserver\n{lines}\nEND\nexit 1\n")
    program.chmod(0o755)
    return Installation(program, folder / "backends")


@pytest.mark.parametrize("options", [OLD, NEW])
def test_a_server_is_given_what_it_knows(tmp_path: Path, options: str) -> None:
    installation = server_that_knows(tmp_path, options)
    known = options_of(installation, {})
    assert known == set(options.split())
    for complete in (False, True):
        server = TritonServer(
            tmp_path, "tiny", "python", tmp_path / "log",
            device=CpuDevice(), port=1234, complete_config=complete,
        )  # fmt: skip
        words = server._command(installation, tmp_path, known)[1:]
        given = {word[2:].split("=")[0] for word in words} - {"backend-config"}
        assert given == known - ({"disable-auto-complete-config"} if complete else set())


def test_a_server_that_cannot_be_kept_on_loopback_needs_the_users_word(tmp_path: Path) -> None:
    old = frozenset(OLD.split())
    with pytest.raises(CaseError, match="all interfaces.*TRITON_ALL_INTERFACES"):
        check_reach(old, tmp_path, {})
    check_reach(old, tmp_path, {"TRITON_ALL_INTERFACES": "yes"})
    check_reach(frozenset(NEW.split()), tmp_path, {})


def test_a_program_that_is_no_server_is_named(tmp_path: Path) -> None:
    installation = server_that_knows(tmp_path, "")
    with pytest.raises(CaseError, match="does not tell its options: Usage"):
        options_of(installation, {})
    installation.server.write_bytes(b"\0")
    with pytest.raises(CaseError, match="does not tell its options: .*Exec format"):
        options_of(installation, {})


def test_the_poplar_backend_is_taken_from_the_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    installation = find_installation({"TRITON_SERVER": str(program)})
    sdk = tmp_path / "sdk" / "poplar"
    (sdk / "lib").mkdir(parents=True)
    environment = {"POPLAR_SDK_ENABLED": str(sdk)}
    second = tmp_path / "opt" / "libtriton_poplar.so"
    monkeypatch.setattr(triton_installation, "POPLAR_BACKENDS", (second,))
    with pytest.raises(CaseError, match="the SDK has no .*libtriton_poplar.so and no .*/opt/"):
        link_backend("poplar", installation, tmp_path / "first", environment)
    second.parent.mkdir()
    second.write_text("")
    link_backend("poplar", installation, tmp_path / "opt-only", environment)
    linked = tmp_path / "opt-only" / "poplar" / "libtriton_poplar.so"
    assert linked.resolve() == second
    (sdk.parent / "libtriton_poplar.so").write_text("")
    link_backend("poplar", installation, tmp_path / "second", environment)
    linked = tmp_path / "second" / "poplar" / "libtriton_poplar.so"
    assert linked.resolve() == sdk.parent / "libtriton_poplar.so"
    assert (tmp_path / "second" / "poplar" / "lib").is_dir()


def test_request_options_are_options_of_the_case() -> None:
    found = set(effective_options(HOST["resnet50"], frozenset())) | LOAD_OPTIONS
    assert TritonRuntime.request_options < found | {"batches_per_step", "steps", "compile_only"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 3}, "batches_per_step=32: every one of 3 clients"),
        ({"eight_bit_io": False}, "requests always carry uint8 images"),
        ({"grpc_port": 70000}, "ports end at 65535"),
        ({"model_cache_path": "x"}, "the server keeps no compiled models"),
    ],
)
def test_what_a_server_cannot_do_is_refused(options: Dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TritonClassifier(**options).check()
