"""Files for a server, and the requirements of a given repository."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest
from PIL import Image

from ipubench.bench_inference.bench_triton import HOST, IPU, TritonClassifier
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.images.feed import ImageFeed, find_images
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.cuda import CudaDevice
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.machine.loopback import ALLOCATOR, tuned
from ipubench.fixtures.servers.images import RequestImages, decoded
from ipubench.fixtures.servers.triton import installation as triton_installation
from ipubench.fixtures.servers.triton.classifiers import HostClassifier
from ipubench.fixtures.servers.triton.installation import (
    Installation,
    check_reach,
    find_installation,
    link_backend,
    server_environment,
    server_options,
)
from ipubench.fixtures.servers.triton.poplar_classifier import PoplarClassifier
from ipubench.fixtures.servers.triton.repository import check_repository, link_model
from ipubench.fixtures.servers.triton.server import TritonServer

# The numbers in the original program's configurations.
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
    classifier = PoplarClassifier(IpuDevice(), config.network(), config, feed)
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
def test_a_hosts_model_has_its_network_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server runs in another folder, so a relative path would be wrong."""
    weights = tmp_path / 'odd "name" \\ ü.pth'
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(HOST["resnet50"], micro_batch_size=3, weights=weights.name)
    feed = ImageFeed("real", 3, config.image_size)
    model = HostClassifier(CpuDevice(), config.network(), config, feed).model()
    found = parsed(model.config())
    assert (found["backend"], found["max_batch_size"]) == ("python", 3)
    assert found["output"][0]["data_type"] == "TYPE_FP32"
    network = json.loads(found["parameters"]["network"]["string_value"])
    assert (network["network"]["model"], network["shape"]) == ("resnet50", [3, 3, 224, 224])
    assert network["network"]["weights"] == str(weights)
    assert network["network"]["norm"]["kind"] == "batch"
    assert "dynamic_batching" not in found
    joining = dataclasses.replace(
        config, max_batch_size=8, max_queue_delay_ms=1.5, preferred_batch_sizes=(6, 4)
    )
    joins = HostClassifier(CpuDevice(), config.network(), joining, feed).model()
    batching = "preferred_batch_size: [ 4, 6 ] max_queue_delay_microseconds: 1500"
    assert f"dynamic_batching {{ {batching} }}" in joins.config()
    assert joining.compiled_batch_sizes[-3:] == (4, 6, 8)
    version = model.write(tmp_path / "repository")
    assert {path.name for path in version.iterdir()} == {"model.py"}


def test_a_server_gets_one_model_of_a_repository(tmp_path: Path) -> None:
    given = tmp_path / "given"
    for name in ("net", "other"):
        (given / name / "1").mkdir(parents=True)
    link_model(given, "net", tmp_path / "served")
    (found,) = (tmp_path / "served").iterdir()
    assert found.resolve() == given / "net"
    check_repository(given, "net")
    for folder in (given / "net", tmp_path / "nowhere"):
        with pytest.raises(CaseError, match=f"model_repository={folder} .* net"):
            check_repository(folder, "net")


def test_clients_have_different_requests(tmp_path: Path) -> None:
    images = RequestImages(ImageFeed("generated", 2, 32), clients=3)
    assert images.images.shape == (2, 3, 32, 32)
    entries = images.write(tmp_path / "images.npy")
    assert [entry["first"] for entry in entries] == [0, 200, 400]
    assert {entry["requests"] for entry in entries} == {100}
    # 90 images of 380 pixels are 39 MB: all requests together stay within 256 MiB.
    large = RequestImages(ImageFeed("generated", 90, 380), clients=2)
    assert large.requests_each == 3
    with pytest.raises(CaseError, match=" 2.10 GiB, .* micro_batch_size"):
        RequestImages(ImageFeed("generated", 15000, 224), clients=1)


def test_requests_replace_unreadable_images_by_the_next_ones(tmp_path: Path) -> None:
    for index in range(6):
        Image.new("RGB", (40, 40), (40 * index,) * 3).save(tmp_path / f"{index}.png")
    for index in (0, 2, 3):
        (tmp_path / f"{index}.png").write_bytes(b"no image")
    feed = ImageFeed("real", 1, 32, folder=find_images(tmp_path), workers=2)
    assert [int(image.max()) for image in decoded(feed, 2)] == [40, 160]
    assert [Path(path).name for path in feed.corrupt] == ["0.png", "2.png", "3.png"]
    assert len(decoded(feed, 100)) == 3


# Counts page faults of buffers that glibc maps again each time unless told to keep them.
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


def test_other_processes_use_memory_like_the_measuring_process() -> None:
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


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    """The folder of a server's program, which is alone in it."""
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    return find_installation({"TRITON_SERVER": str(program)})


def test_the_paths_of_a_server_and_its_backends(tmp_path: Path, installation: Installation) -> None:
    assert installation.server == tmp_path / "bin" / "tritonserver"
    assert installation.backends == tmp_path / "backends"
    named = {"TRITON_SERVER": str(installation.server), "TRITON_BACKENDS": "~/backends"}
    assert find_installation(named).backends == Path.home() / "backends"
    with pytest.raises(CaseError, match="TRITON_SERVER=/nowhere"):
        find_installation({"TRITON_SERVER": "/nowhere"})
    with pytest.raises(
        CaseError, match=f"backend python .*{installation.backends}.*TRITON_BACKENDS"
    ):
        link_backend("python", installation, tmp_path / "made", {})


def test_the_environment_of_a_server_keeps_exported_variables(installation: Installation) -> None:
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


# The options in a server's --help, without their descriptions; r21.05 is built with gRPC only.
OLD = "model-repository backend-directory model-control-mode grpc-port exit-timeout-secs"
NEW = f"{OLD} grpc-address allow-http allow-metrics grpc-restricted-protocol"
NEW += " disable-auto-complete-config"


def server_that_knows(folder: Path, options: str) -> Installation:
    """Return a program that prints its options like a server and exits with 1."""
    program = folder / "tritonserver"
    lines = "\n".join(f"  --{name} <string>" for name in options.split())
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\nUsage: tritonserver\n{lines}\nEND\nexit 1\n")
    program.chmod(0o755)
    return Installation(program, folder / "backends")


@pytest.mark.parametrize("options", [OLD, NEW])
def test_a_server_gets_only_known_options(tmp_path: Path, options: str) -> None:
    installation = server_that_knows(tmp_path, options)
    known = server_options(installation, {})
    assert known == set(options.split())
    for complete in (False, True):
        server = TritonServer(
            tmp_path, "tiny", "python", tmp_path / "log",
            device=CpuDevice(), port=1234, complete_config=complete,
        )  # fmt: skip
        words = server._command(installation, tmp_path, known)[1:]
        given = {word[2:].split("=")[0] for word in words} - {"backend-config"}
        assert given == known - ({"disable-auto-complete-config"} if complete else set())


def test_a_server_that_cannot_be_kept_on_loopback_needs_the_users_consent(tmp_path: Path) -> None:
    old = frozenset(OLD.split())
    with pytest.raises(CaseError, match="all interfaces.*TRITON_ALL_INTERFACES"):
        check_reach(old, tmp_path, {})
    check_reach(old, tmp_path, {"TRITON_ALL_INTERFACES": "yes"})
    check_reach(frozenset(NEW.split()), tmp_path, {})


def test_a_program_that_is_not_a_server_is_named(tmp_path: Path) -> None:
    installation = server_that_knows(tmp_path, "")
    for content in (installation.server.read_bytes(), b"\0"):
        installation.server.write_bytes(content)
        with pytest.raises(CaseError, match=str(installation.server)):
            server_options(installation, {})


def test_the_poplar_backend_is_found_in_the_sdk(
    tmp_path: Path, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = tmp_path / "sdk" / "poplar"
    (sdk / "lib").mkdir(parents=True)
    environment = {"POPLAR_SDK_ENABLED": str(sdk)}
    places = [tmp_path / "opt.so", sdk.parent / "libtriton_poplar.so"]  # the second is preferred
    monkeypatch.setattr(triton_installation, "POPLAR_BACKENDS", (places[0],))
    with pytest.raises(CaseError, match="libtriton_poplar.so"):
        link_backend("poplar", installation, tmp_path / "none", environment)
    for place in places:
        place.write_text("")
        target = tmp_path / place.stem
        link_backend("poplar", installation, target, environment)
        found = {path.resolve() for path in (target / "poplar").iterdir()}
        assert found == {place, sdk / "lib"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"clients": 3}, "batches_per_step=32"),
        ({"eight_bit_io": False}, "eight_bit_io"),
        ({"grpc_port": 70000}, "grpc_port"),
        ({"model_cache_path": "x"}, "model_cache_path"),
        ({"max_queue_delay_ms": 1.0}, "max_queue_delay_ms"),
        ({"max_batch_size": 1}, "max_batch_size"),
        ({"preferred_batch_sizes": (4,)}, "preferred_batch_sizes"),
        ({"max_batch_size": 8, "preferred_batch_sizes": (16,)}, "preferred_batch_sizes"),
    ],
)
def test_unservable_options_are_refused(options: Dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        TritonClassifier(**options).check()
