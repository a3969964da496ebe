"""A module of one's own: what a step computes, counts and records, on a host and on IPUs."""

from __future__ import annotations

import json
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.devices.cpu import CpuDevice
from ipubench.fixtures.devices.ipu import IpuDevice
from ipubench.fixtures.runtimes.step import ask
from tests.doubles import poptorch as double

pytestmark = pytest.mark.framework
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

BATCH, LENGTH, WIDTH = 2, 6, 8


class Encoder(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """One layer of a transformer encoder, and a head."""

    def __init__(self, loss: bool = False) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer
        self.layer = layer(WIDTH, 2, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, 3)
        self.loss = loss

    def forward(self, values: Any, labels: Any = None) -> Any:
        logits = self.head(self.layer(values))
        return (
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels) if self.loss else logits
        )


@pytest.fixture
def host() -> Any:
    from ipubench.fixtures.runtimes.torch.host.torch_host import TorchHost

    return TorchHost(CpuDevice(pin=False))


def values() -> Any:
    return torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))


def labels() -> Any:
    return torch.arange(BATCH * LENGTH) % 3


def ready(step: Any) -> Any:
    step.build()
    step.compile()
    return step


#: FLOP of the products of one layer and the head: four projections, two of attention, two of the
#: feed-forward network.
TOKENS = BATCH * LENGTH
FORWARD = 2.0 * TOKENS * (4 * WIDTH**2 + 2 * LENGTH * WIDTH + 8 * WIDTH**2 + 3 * WIDTH)


def test_inference_is_the_modules_forward_pass(host: Any) -> None:
    module = Encoder().train()
    step = ready(host.step(module, values()))
    step.batches_per_step = 3
    step()
    module.eval()
    with torch.inference_mode():
        torch.testing.assert_close(step.result, module(values()))
    assert step.work.flops_per_item is None
    assert ask(step.work.flops_per_batch) == FORWARD
    assert step.describe() == {"precision": "float32", "training": False, "engine": "eager"}
    size = sum(p.numel() for p in module.parameters())
    assert ask(step.work.weight_traffic) == 4 * size
    module.train()
    step.close()
    assert module.training  # as it was
    left = weakref.ref(step)
    del step
    assert left() is None  # without a garbage collection


def test_a_training_step_is_pytorchs(host: Any) -> None:
    torch.manual_seed(2)
    ours, theirs = Encoder(loss=True), Encoder(loss=True)
    theirs.load_state_dict(ours.state_dict())
    step = host.step(
        ours, (values(), labels()), train=True, optimizer=torch.optim.Adam(ours.parameters())
    )
    ready(step)()
    reference = torch.optim.Adam(theirs.parameters())
    for _ in range(2):  # compiling runs one step
        reference.zero_grad()
        loss = theirs(values(), labels())
        loss.backward()
        reference.step()
    torch.testing.assert_close(dict(ours.named_parameters()), dict(theirs.named_parameters()))
    assert step.counters() == {"loss": pytest.approx(loss.item(), rel=1e-5)}
    # Backward has two products for each of forward, except for the first layer's input.
    flops = ask(step.work.flops_per_batch)
    assert flops is not None and 2 * FORWARD < flops <= 3 * FORWARD
    step.close()


@pytest.mark.parametrize(
    ("module", "message"),
    [(Encoder(), "its loss"), (torch.nn.ReLU(), "no parameter")],
)
def test_what_cannot_train_is_one_message(host: Any, module: Any, message: str) -> None:
    with pytest.raises(CaseError, match=message):
        ready(host.step(module, values(), train=True))


def test_an_argument_of_another_kind_is_one_message(host: Any) -> None:
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(module.parameters())
    for given in (
        (torch.nn.Linear, False, None),
        (lambda values: values, False, None),
        (module, True, torch.optim.SGD),
        (module, False, optimizer),
    ):
        with pytest.raises(CaseError, match=r"pytorch\.step\("):
            host.step(given[0], values(), *given[1:])


def test_a_cpu_measures_no_peak_in_float16(host: Any) -> None:
    module = torch.nn.Linear(2, 1)
    assert host.step(module, values()).reference.peak is not None
    assert host.step(module.half(), values()).reference.peak is None


def test_the_trace_opens(host: Any, tmp_path: Path) -> None:
    step = ready(host.step(Encoder(), values()))
    step.profile(tmp_path)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any("addmm" in str(event.get("name")) for event in events)


@pytest.mark.parametrize("train", [False, True])
def test_an_ipu_runs_it_by_poptorch(monkeypatch: pytest.MonkeyPatch, train: bool) -> None:
    monkeypatch.setitem(sys.modules, "poptorch", double.as_module())
    from ipubench.fixtures.runtimes.torch.ipu.poptorch_ipu import PopTorchIpu

    module = Encoder(loss=train)
    given = (values(), labels()) if train else values()
    step = ready(PopTorchIpu(IpuDevice()).step(module, given, train=train))
    step()
    wrapped = "trainingModel" if train else "inferenceModel"
    assert wrapped in double.recorder.names()
    assert step.describe()["engine"] == "poptorch"
    assert (step.counters() != {}) is train
    step.close()
    assert double.recorder.names()[-1] == "PoplarExecutor.destroy"
