"""The serving cases' options, and where a server's program is looked for."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any, Dict

import pytest

from bench_inference.bench_tensorflow_serving import HOST, IPU
from bench_inference.serving import Serving
from fixtures.config import config_hash, resolve_key
from fixtures.errors import CaseError
from fixtures.servers.tensorflow_serving import find_server
from plugins.overrides import convert


def test_the_cases_are_the_original_programs() -> None:
    asked = {
        name: (
            config.micro_batch_size,
            config.request_batch_size,
            config.num_threads,
            config.use_async,
            config.port,
            config.num_images,
        )
        for name, config in IPU.items()
    }
    assert asked == {
        "resnet50_infer_bs16": (16, 8, 32, False, 8502, 1000),
        "resnet50_infer_bs1-throughput": (1, 1, 16, True, 8502, 1000),
        "resnet50_infer_bs32-throughput": (32, 32, 16, True, 8502, 1000),
        "resnet50_infer_bs1-latency": (1, 1, 1, False, 8502, 1000),
    }
    assert list(HOST) == list(IPU)
    for config in (*IPU.values(), *HOST.values()):
        config.check()
        assert config.eight_bit_transfer and config.model_name == "resnet50"
        assert config.mode == "inference"
    assert [config.ipus for config in IPU.values()] == [1, 1, 1, 1]
    assert [name for name, config in IPU.items() if config.batches_requests] == [
        "resnet50_infer_bs16"
    ]


def test_a_host_runs_one_batch_at_a_time_and_an_ipus_server_four() -> None:
    assert [config.batch_threads for config in (*HOST.values(), *IPU.values())] == [1] * 4 + [4] * 4
    assert dataclasses.replace(HOST["resnet50_infer_bs16"], num_batch_threads=3).batch_threads == 3


def test_a_request_is_always_full() -> None:
    config = dataclasses.replace(HOST["resnet50_infer_bs16"], num_images=33)
    assert config.requests_each == 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"request_batch_size": 17}, "request_batch_size=17: .* micro_batch_size=16"),
        ({"replicas": 2}, "replicas"),
        ({"pipeline_splits": ("conv3_block1_out",)}, "one replica on one IPU"),
        ({"batches_per_step": 4}, "num_images and num_threads say"),
        (
            {"request_batch_size": 16, "num_batch_threads": 2},
            "num_batch_threads has no effect: .* makes no batches",
        ),
        ({"port": 70000}, "ports end at 65535"),
    ],
)
def test_what_a_server_cannot_do_is_refused(changes: Dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(IPU["resnet50_infer_bs16"], **changes).check()


def test_names_of_the_original_program_work() -> None:
    assert resolve_key(Serving, "batch-size") == "request_batch_size"
    assert resolve_key(Serving, "micro_batch_size") == "micro_batch_size"
    assert resolve_key(Serving, "clients") == "num_threads"
    for host in ("0.0.0.0", "localhost"):
        assert convert(Serving, "host", host) == host
    with pytest.raises(ValueError, match="'10.0.0.1' is not one of"):
        convert(Serving, "host", "10.0.0.1")


def test_what_is_printed_and_the_port_are_not_what_is_measured() -> None:
    config = HOST["resnet50_infer_bs16"]
    same = dataclasses.replace(config, port=9000, verbose=True, host="localhost")
    other = dataclasses.replace(config, num_batch_threads=2)
    assert config_hash(same, frozenset()) == config_hash(config, frozenset())
    assert config_hash(other, frozenset()) != config_hash(config, frozenset())


def executable(folder: Path, name: str = "tensorflow_model_server") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return (folder / name).resolve()


def test_a_servers_program_is_found_where_it_was_named_then_where_it_usually_is(
    tmp_path: Path,
) -> None:
    empty = {"PATH": str(tmp_path / "nothing")}
    assert find_server("", empty) is None
    below_sdk = executable(tmp_path / "sdk" / "serving" / "bin", "tensorflow_model_server-2.6")
    enabled = {**empty, "POPLAR_SDK_ENABLED": str(tmp_path / "sdk" / "poplar-ubuntu")}
    (tmp_path / "sdk" / "poplar-ubuntu").mkdir()
    assert find_server("", enabled) == below_sdk
    on_path = executable(tmp_path / "bin")
    enabled["PATH"] = str(tmp_path / "bin")
    assert find_server("", enabled) == on_path
    of_variable = executable(tmp_path / "variable")
    enabled["TF_SERVING_PATH"] = str(tmp_path / "variable")
    assert find_server("", enabled) == of_variable
    of_option = executable(tmp_path / "option", "server")
    assert find_server(str(of_option), enabled) == of_option
    with pytest.raises(CaseError, match="serving_bin_path=.*nowhere: no program that can be run"):
        find_server(str(tmp_path / "nowhere"), enabled)
    of_variable.chmod(0o644)
    with pytest.raises(CaseError, match="TF_SERVING_PATH=.*variable: no program that can be run"):
        find_server("", enabled)


def test_a_port_in_use_is_one_message(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs grpcio: make setup installs it")
    from fixtures.devices.cpu import CpuDevice
    from fixtures.servers.tensorflow_serving import Served, ServingServer

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        server = ServingServer(
            Served("m", tmp_path), None, tmp_path / "log", tmp_path, device=CpuDevice(), port=port
        )
        with pytest.raises(CaseError, match=f"port={port}: another program listens on 127.0.0.1"):
            server.start()
    assert not server.alive
