"""TensorFlow's kernels against the obvious programs (keras_kernels.py).

Ours is the step that the benchmark times, with synthetic data, in the form that it chooses
(TensorFlow's loop or XLA); the peers are the same layers in Keras, with XLA and without.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Callable, Dict, List

from ipubench.bench_kernels.bench_dense import Dense, bench_dense
from ipubench.bench_kernels.bench_grouped_conv import GroupedConv, bench_grouped_conv
from ipubench.bench_kernels.bench_gru import Gru, bench_gru
from ipubench.bench_kernels.bench_hmc import Hmc, bench_hmc
from ipubench.bench_kernels.bench_lstm import Lstm, bench_lstm
from ipubench.bench_kernels.bench_lstm_multi import LstmMulti, bench_lstm_multi
from ipubench.bench_kernels.bench_rnn import Rnn, bench_rnn
from ipubench.fixtures.runtimes.tensorflow.on_host import TensorFlowHost
from scripts.compare_peers.case import DATA, Case, Conditions, Family, Program
from scripts.compare_peers.keras_kernels import peers
from scripts.kernel_cases import KernelCase

BENCHES: Dict[type, Callable[..., None]] = {
    Dense: bench_dense,
    GroupedConv: bench_grouped_conv,
    Gru: bench_gru,
    Hmc: bench_hmc,
    Lstm: bench_lstm,
    LstmMulti: bench_lstm_multi,
    Rnn: bench_rnn,
}
# Each kernel's default, and larger shapes.
CONFIGS: List[Any] = [
    Dense(),
    Dense(name="dense-relu", include_activation=True),
    GroupedConv(),
    GroupedConv(name="grouped_conv-8-images", batch_size=8),
    GroupedConv(name="grouped_conv-groups-of-8", group_dim=8),
    Gru(),
    Gru(name="gru-8x10x256", batch_size=8, timesteps=10, hidden_size=256, input_size=256),
    Gru(name="gru-64x25x512", batch_size=64, timesteps=25, hidden_size=512, input_size=512),
    Lstm(),
    Lstm(name="lstm-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Lstm(name="lstm-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
    LstmMulti(),
    LstmMulti(name="lstm_multi-bs16", batch_size=16),
    LstmMulti(name="lstm_multi-bs128", batch_size=128),
    Rnn(),
    Rnn(name="rnn-8x10x256", batch_size=8, timesteps=10, hidden_size=256),
    Rnn(name="rnn-64x25x512", batch_size=64, timesteps=25, hidden_size=512),
    Hmc(),
]
MODES = ("inference", "training")


def _cases() -> Dict[str, Any]:
    """Return each configuration in each mode by name; a Markov chain has no mode."""
    found = {}
    for config in CONFIGS:
        if isinstance(config, Hmc):
            found[config.name] = config
            continue
        for mode in MODES:
            found[f"{config.name}-{mode}"] = dataclasses.replace(config, mode=mode)
    return found


class TensorFlowKernels(Family):
    """Every TensorFlow kernel, at its default size and at larger ones."""

    title = "TensorFlow kernels"
    unit = "items/s"
    usual = (
        *(f"{kind}-inference" for kind in ("dense", "grouped_conv", "gru", "lstm", "rnn")),
        *(f"{kind}-training" for kind in ("dense", "lstm")),
        *("lstm_multi-bs16-inference", "lstm-64x25x512-inference", "hmc"),
    )

    @classmethod
    def names(cls) -> List[str]:
        return list(_cases())

    def __init__(self, conditions: Conditions) -> None:
        super().__init__(conditions)
        self.host = TensorFlowHost(conditions.device)

    def open(self, name: str) -> Case:
        config = _cases()[name]
        if not isinstance(config, Hmc):
            config = dataclasses.replace(config, precision=self.conditions.precision)
        tf, dtype = self.host.tf, "float32" if isinstance(config, Hmc) else self.conditions.dtype
        found = peers(tf, config, tf.as_dtype(dtype))
        if self.conditions.own:
            other = "off" if config.use_xla else "on"
            found[f"ours, xla={other}"] = partial(self._ours, config, other)
        items = config.hmc_steps if isinstance(config, Hmc) else config.batch_size
        return Case(float(items), dtype, partial(self._ours, config), found)

    def _ours(self, config: Any, xla: str = "auto") -> Program:
        """Return the benchmark's own step."""
        config = dataclasses.replace(config, xla=xla)
        case = KernelCase(BENCHES[type(config)], "tensorflow", config)
        step, _ = case.step(self.host, DATA)
        step.build()
        step.compile()
        run: Program = step.run
        return run
