"""The serving cases' options, and the search for a server's program."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any, Dict

import pytest

from ipubench.bench_inference.bench_tensorflow_serving import HOST, IPU
from ipubench.bench_inference.serving import Serving
from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import resolve_key
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.servers.tensorflow_serving.server import find_server
from ipubench.plugins.command_line.set_option import convert

COSINE = Parameters({"initial_learning_rate": 0.1, "epochs_to_total_decay": 2})


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


def test_derived_values_of_the_options() -> None:
    example = HOST["resnet50_infer_bs16"]
    # A host runs one batch at a time, an IPU's server four.
    assert [config.batch_threads for config in (*HOST.values(), *IPU.values())] == [1] * 4 + [4] * 4
    assert dataclasses.replace(example, num_batch_threads=3).batch_threads == 3
    assert dataclasses.replace(example, num_images=33).requests_each == 5  # the last is full


@pytest.mark.parametrize(
    "changes",
    [
        {"request_batch_size": 17},
        {"replicas": 2},
        {"pipeline_splits": ("conv3_block1_out",)},
        {"batches_per_step": 4},
        {"num_batch_threads": 2, "request_batch_size": 16},
        {"port": 70000},
        {"checkpoint_input_dir": "x"},
        {"num_epochs": 2},
        {"lr_schedule": "cosine", "lr_schedule_params": COSINE},
        {"validation_micro_batch_size": 4},
        {"device_mapping": (0,)},
        {"prefetch_depth": 3},
        {"compile_only": True},
    ],
)
def test_unservable_options_are_refused(changes: Dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        dataclasses.replace(IPU["resnet50_infer_bs16"], **changes).check()


def test_names_of_the_original_program_work() -> None:
    assert resolve_key(Serving, "batch-size") == "request_batch_size"
    assert resolve_key(Serving, "micro_batch_size") == "micro_batch_size"
    assert resolve_key(Serving, "clients") == "num_threads"
    assert convert(Serving, "host", "0.0.0.0") == "0.0.0.0"  # noqa: S104  it is another's default
    with pytest.raises(ValueError, match=r"10\.0\.0\.1"):
        convert(Serving, "host", "10.0.0.1")


def test_printing_options_and_the_port_are_not_measured() -> None:
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


def test_a_servers_program_is_found_at_its_given_or_usual_place(
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
    of_variable.chmod(0o644)
    for name, lost in (("serving_bin_path", str(tmp_path / "nowhere")), ("TF_SERVING_PATH", "")):
        with pytest.raises(CaseError, match=f"{name}="):
            find_server(lost, enabled)


def test_a_missing_program_or_a_busy_port_fails_before_anything_is_built(
    tmp_path: Path,
) -> None:
    from ipubench.fixtures.devices.cpu import CpuDevice
    from ipubench.fixtures.servers.tensorflow_serving.runtime import ServingRuntime

    runtime = ServingRuntime(None, CpuDevice(), tmp_path / "logs", tuned=False)
    config = HOST["resnet50_infer_bs16"]

    def fails(said: str, **changes: Any) -> None:
        with pytest.raises(CaseError, match=said):
            # Neither the network nor the feed exists.
            runtime.inference(None, dataclasses.replace(config, **changes), None)  # type: ignore[arg-type]

    try:
        fails(
            "serving_bin_path=.*nowhere: not an executable",
            serving_bin_path=str(tmp_path / "nowhere"),
        )
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            fails(f"port={port}: another program listens on 127.0.0.1:{port}", port=port)
    finally:
        runtime.close()
