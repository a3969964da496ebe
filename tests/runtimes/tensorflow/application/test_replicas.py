"""Replicas that train together on a host as processes that exchange gradients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.machine import scratch
from ipubench.fixtures.runtimes.data_parallel import job_variables
from ipubench.fixtures.runtimes.exchange import make_folder
from tests.support.examples import learnable
from tests.support.harness import ROOT, SuiteServer
from tests.support.instances import launchers_in
from tests.support.listening import watched_run

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(
        sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
        reason="needs Linux and two cores that this process may use",
    ),
]
tf = pytest.importorskip("tensorflow", reason="pip install '.[tensorflow]' adds TensorFlow")

UPDATES = 6
# MNIST's images are not augmented, so two halves of a batch equal the batch. The distributed norm
# of two replicas is that of one batch, and so is everything else.
PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from ipubench.bench_training.application.case import Application
from ipubench.fixtures.data.tfds.find import find_prepared
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
folder, rank, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
config = Application(
    name="small", dataset="mnist", model_name="toy_model_bn", precision="32.32", data="real",
    micro_batch_size=16 // count, replicas=count, dbn_replica_group_size=count,
    weight_updates_per_epoch={updates}, deterministic=True, shuffle=False, validation=False,
    optimizer_params=Parameters({{"momentum": 0.9}}),
    lr_schedule_params=Parameters({{"initial_learning_rate": 0.01}}),
)
config.check()
data = Data(lambda kind, *names: find_prepared(folder, *names), part=(rank, count))
step = TensorFlowHost(CpuDevice()).application(
    config.classifier(), config, config.feed(data),
    config.validation_feed(data))
step.build()
step.compile()
losses = [step.program.run(1) for _ in range({updates})]
norms = [float(abs(v.numpy()).sum()) for v in step.program.classifier.trainable_variables]
print(json.dumps({{"losses": losses, "norms": norms, "accuracy": step.program.accuracy}}))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MNIST's layout, with as many images as the updates take."""
    folder = tmp_path_factory.mktemp("mnist")
    learnable(tf, folder, "mnist", 16 * UPDATES, 16)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that runs its argument in a process with TensorFlow already imported."""
    path = tmp_path_factory.mktemp("python") / "python"
    SuiteServer.python(path, framework="tensorflow")
    return path


def trained(python: Path, dataset: Path, count: int) -> List[Dict[str, Any]]:
    """Return the output of each of this many replicas for the same training."""
    meeting = make_folder(count)
    running = []
    for rank in range(count):
        more = job_variables(str(meeting), rank, count) if count > 1 else {}
        words = [str(dataset), str(rank), str(count)]
        running.append(
            subprocess.Popen(
                [str(python), "-c", PROGRAM.format(updates=UPDATES), *words],
                cwd=str(ROOT),
                env={**os.environ, **more},
                stdout=subprocess.PIPE,
            )
        )
    outputs = [process.communicate(timeout=240)[0] for process in running]
    scratch.remove(meeting)
    assert [process.returncode for process in running] == [0] * count
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def test_two_processes_learn_the_same_as_one_from_the_same_global_batch(
    python: Path, dataset: Path
) -> None:
    (alone,) = trained(python, dataset, 1)
    together = trained(python, dataset, 2)
    assert len(set(alone["losses"])) == UPDATES
    for one in together:
        assert one["losses"] == pytest.approx(alone["losses"], rel=1e-4)
        assert one["norms"] == pytest.approx(alone["norms"], rel=1e-4)
        assert one["accuracy"] == alone["accuracy"]


@pytest.mark.nightly
def test_the_suite_runs_replicas_as_one_job(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        **launchers_in(tmp_path),
        "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"),
    }
    outcome, seen = watched_run(
        ROOT,
        environment,
        "bench_training/bench_application.py",
        "-k",
        "resnet8_test-generated",
        "--device=cpu",
        "--set=replicas=2",
        "--set=micro_batch_size=4",
        "--set=model_name=toy_model_bn",
        "--set=weight_updates_per_epoch=4",
        "--set=num_epochs=4",
        "--set=logs_per_epoch=2",
        "--steps=2",
        "-s",
        f"--results-dir={tmp_path / 'results'}",
        framework="tensorflow",
    )
    outcome.assert_code(0)
    assert not seen
    (journal,) = (tmp_path / "results").glob("run-*.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    (record,) = (
        line["benchmark"]["extra_info"]["ipubench"] for line in lines if line["type"] == "case"
    )
    assert record["effective"]["instances"]["ran"] == 2, outcome.text
    accumulation = record["effective"]["gradient_accumulation"]
    assert record["items_per_round"] == 2 * 2 * 4 * accumulation  # updates, replicas, micro batch
    assert record["counters"]["weight_updates"] >= 4
    assert record["finish"]["validation"]
    # From the first replica, through the run: each line once.
    logged = re.findall(r"^batch (\d+): \[throughput: ", outcome.text, re.MULTILINE)
    assert logged[:2] == ["2", "4"], outcome.text
    assert len(logged) == record["counters"]["log_lines"]
    outcome.line("validation of ")
