"""Instances under poprun: calls of PopDist, and PopTorch's options in an instance."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from typing import Any, Dict

import pytest

from ipubench.bench_inference.bench_cnn_torch import IPU, POD4
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.data.images.feed import ImageFeed
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.instances.plan import poprun, rank
from ipubench.fixtures.runtimes.data_parallel import (
    initialise_popdist,
    local_replicas,
    popdist_instance,
)
from ipubench.fixtures.runtimes.torch.ipu.poptorch_options import _start as start_options
from tests.doubles import popdist as double
from tests.doubles import poptorch as poptorch_double
from tests.support.sdk_api import description


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> double.Job:
    """Make this process the second of two instances with four replicas, with PopDist installed."""
    for name, module in double.as_modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    double.recorder.index = 1
    return double.recorder


def described() -> Dict[str, Any]:
    return description("popdist.json")


def test_the_stand_in_offers_popdists_names() -> None:
    modules = described()["modules"]
    for name in double.OFFERED:
        ours = inspect.signature(getattr(double, name)).parameters
        real = modules["popdist"]["functions"][name]
        assert list(ours) == [parameter["name"] for parameter in real["params"]], name
    options = modules["popdist.poptorch"]["classes"]["Options"]
    ours = inspect.signature(double.Options).parameters
    assert list(ours) == [parameter["name"] for parameter in options["init"]]
    assert {"useIpuId", "replicationFactor"} <= set(options["blocked_methods"])


def test_poprun_has_the_given_options() -> None:
    launcher = poprun(4, 4, 2, ["--host=localhost"])
    given = [re.sub("=.*", "", word) for word in launcher.arguments[1:]]
    assert len(given) == 6 and launcher.hosts == ("localhost",)
    assert set(given) <= set(described()["poprun"]["options"])


def test_an_instance_takes_its_number_and_its_replicas_from_popdist(job: double.Job) -> None:
    assert popdist_instance() is not None
    assert local_replicas(4) == 2
    assert rank("poprun", {"RANK": "7"}) == 1
    assert [name for name in job.names() if name != "isPopdistEnvSet"] == [
        *("getNumLocalReplicas", "init", "getInstanceIndex")
    ]


def test_popdist_of_sdk_26_needs_no_initialisation(
    job: double.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "popdist", double.as_modules("2.6")["popdist"])
    job.index = 1
    assert rank("poprun", {}) == 1 and "init" not in job.names()


def test_poptorch_gets_the_ipus_of_a_pipeline(job: double.Job) -> None:
    """PopDist refuses numbers other than poprun's."""
    config = dataclasses.replace(IPU["resnet50"], replicas=4, pipeline_splits=("layer2/0/conv1",))
    job.ipus_per_replica = 2
    start_options(None, config)
    job.ipus_per_replica = 1
    with pytest.raises(AssertionError, match="another number"):
        start_options(None, config)


@pytest.mark.framework
def test_compiling_offline_ignores_the_ipus_of_an_instance(
    job: double.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So compile_only is refused with several instances."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    from ipubench.fixtures.runtimes.torch.ipu.poptorch_options import poptorch_options

    poptorch = poptorch_double.as_module()
    config = dataclasses.replace(POD4["resnet50_minlatency"], compile_only=True)
    feed = ImageFeed("generated", batch_size=2, image_size=32)
    options = poptorch_options(poptorch, config, IpuDevice(), feed)
    with pytest.raises(poptorch.Error, match="IPU id"):
        poptorch.inferenceModel(torch.nn.Linear(4, 4), options).compile(torch.zeros(256, 4))


def test_a_process_without_poprun_is_alone(
    job: double.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.started = False
    assert (popdist_instance(), initialise_popdist(), local_replicas(4)) == (None, None, 4)
    assert "init" not in job.names()
    monkeypatch.setitem(sys.modules, "popdist", None)
    assert (popdist_instance(), initialise_popdist(), local_replicas(4)) == (None, None, 4)


@pytest.mark.framework
def test_poptorch_runs_the_replicas_of_its_instance(
    job: double.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: make setup installs it")
    from ipubench.fixtures.runtimes.torch.ipu.poptorch_ipu import PopTorchIpu

    poptorch = poptorch_double.as_module()
    monkeypatch.setitem(sys.modules, "poptorch", poptorch)
    config = dataclasses.replace(POD4["resnet50_minlatency"], micro_batch_size=2, instances=2)
    assert config.replicas == 4
    feed = ImageFeed("generated", batch_size=2, image_size=32)
    runtime = PopTorchIpu(IpuDevice())
    step: Any = runtime.inference(config.network(), config, feed)
    assert step.feed.batch_size == 2 * 2
    facts = step.describe()
    assert facts["options"]["replication_factor"] == 4  # of the case, not of this instance
    assert facts["ipus"] == 4

    from ipubench.fixtures.runtimes.torch.ipu.poptorch_options import poptorch_options

    options = poptorch_options(poptorch, config, IpuDevice(), step.feed)
    assert isinstance(options, double.Options)
    replicas = [g for n, g in poptorch_double.recorder.calls if n == "Options.replicationFactor"]
    assert replicas == [{"replication_factor": 2}]  # by PopDist
    # With other replicas a call would read other images than are counted.
    job.started, job.replicas, job.instances, job.ipus_per_replica = True, 8, 4, 2
    wrong = "=8, but replicas=4, .*=4, but instances=2, .*=2, but stages=1"
    with pytest.raises(CaseError, match=wrong):
        step.build()
    job.started = False
    options = poptorch_options(poptorch, config, IpuDevice(), step.feed)
    assert not isinstance(options, double.Options)
    assert (
        "Options.replicationFactor",
        {"replication_factor": 4},
    ) in poptorch_double.recorder.calls
