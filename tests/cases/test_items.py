"""How many items a batch of each program counts: those of all replicas, on any runtime.

Bench functions stay in their modules: pytest would collect one imported here.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable, Dict, List

import pytest

from ipubench.bench_inference import bench_cnn_tensorflow as validation
from ipubench.bench_inference import bench_cnn_torch as torch
from ipubench.bench_inference import bench_tensorflow_serving as serving
from ipubench.bench_inference import bench_triton as triton
from ipubench.bench_kernels import bench_dense as dense
from ipubench.bench_kernels import bench_grouped_conv as grouped_conv
from ipubench.bench_kernels import bench_gru as gru
from ipubench.bench_kernels import bench_hmc as hmc
from ipubench.bench_kernels import bench_lstm as lstm
from ipubench.bench_kernels import bench_lstm_multi as lstm_multi
from ipubench.bench_kernels import bench_popart_conv as popart_conv
from ipubench.bench_kernels import bench_popart_lstm as popart_lstm
from ipubench.bench_kernels import bench_rnn as rnn
from ipubench.bench_training import bench_application as application
from ipubench.bench_training import bench_cnn_tensorflow as training
from ipubench.fixtures.case.options import CaseConfig
from ipubench.fixtures.data.provider import Data
from tests.support.kernels import no_images

SIZE, REPLICAS, ACCUMULATED = 3, 4, 5
KERNEL: Dict[str, Any] = {"system": "ipu", "batch_size": SIZE, "replicas": REPLICAS}
NETWORK: Dict[str, Any] = {"micro_batch_size": SIZE, "replicas": REPLICAS, "data": "generated"}
TRAINED = {**NETWORK, "gradient_accumulation_count": ACCUMULATED}


def changed(config: CaseConfig, options: Dict[str, Any]) -> CaseConfig:
    return dataclasses.replace(config, **options)


class Runtime:
    """Makes steps that do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@pytest.mark.parametrize(
    ("bench", "config", "items"),
    [
        (dense.bench_dense, dense.Dense(**KERNEL), SIZE * REPLICAS),
        (gru.bench_gru, gru.Gru(**KERNEL), SIZE * REPLICAS),
        (lstm.bench_lstm, lstm.Lstm(**KERNEL), SIZE * REPLICAS),
        (lstm_multi.bench_lstm_multi, lstm_multi.LstmMulti(**KERNEL), SIZE * REPLICAS),
        (rnn.bench_rnn, rnn.Rnn(**KERNEL), SIZE * REPLICAS),
        (
            grouped_conv.bench_grouped_conv,
            grouped_conv.GroupedConv(block_repeats=7, **KERNEL),
            SIZE * REPLICAS * 7,
        ),
        (popart_conv.bench_popart_conv, popart_conv.PopartConv(**KERNEL), SIZE * REPLICAS),
        (popart_lstm.bench_popart_lstm, popart_lstm.PopartLstm(**KERNEL), SIZE * REPLICAS),
        (hmc.bench_hmc, hmc.Hmc(system="ipu", hmc_steps=7), 7),
        (torch.bench_cnn_torch, changed(torch.IPU["resnet50"], NETWORK), SIZE * REPLICAS),
        (
            validation.bench_cnn_tensorflow,
            changed(validation.IPU["resnet50"], NETWORK),
            SIZE * REPLICAS,
        ),
        (
            training.bench_cnn_tensorflow,
            changed(training.M2000["resnet50"], TRAINED),
            SIZE * REPLICAS * ACCUMULATED,
        ),
        (
            application.bench_application,
            changed(application.IPU["resnet8_test"], TRAINED),
            SIZE * REPLICAS * ACCUMULATED,
        ),
        (
            application.bench_application,
            changed(application.IPU["resnet50_infer_bs16"], NETWORK),
            SIZE * REPLICAS,
        ),
        # Clients count their requests.
        (
            triton.bench_triton,
            changed(triton.IPU["resnet50"], {"micro_batch_size": SIZE, "data": "generated"}),
            SIZE,
        ),
        (
            serving.bench_tensorflow_serving,
            changed(
                serving.IPU["resnet50_infer_bs16"], {"request_batch_size": 2, "data": "generated"}
            ),
            2,
        ),
    ],
)
def test_a_batch_counts_the_items_of_all_replicas(
    bench: Callable[..., None], config: CaseConfig, items: int
) -> None:
    counted: List[int] = []
    given = {
        "config": config,
        "data": Data(no_images),
        "instances": lambda step: step,
        "meter": lambda step, items, unit, **_: counted.append(items),
    }
    names = inspect.signature(bench).parameters
    bench(**{name: given.get(name, Runtime()) for name in names})
    assert counted == [items]
