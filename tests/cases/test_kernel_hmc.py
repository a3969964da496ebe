"""The hmc kernel: samples compared with the exact distribution, randomness, packages."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Tuple

import numpy as np
import pytest

from ipubench.bench_kernels.bench_hmc import START, STEP_SIZE, Hmc, hmc
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.tensorflow.host.tensorflow_host import TensorFlowHost
from tests.support.kernels import DATA, Array, StandIn

pytestmark = pytest.mark.framework

TRANSITIONS, CHAINS = 5000, 40


def chain_of(config: Hmc) -> Tuple[Any, Any]:
    """Return (tensorflow, the layer)."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    pytest.importorskip("tensorflow_probability", reason="TensorFlow Probability is not installed")
    return tf, hmc(config, tf, tf.float32)


def moments(config: Hmc, chains: int) -> Array:
    """Return the means of x, x^2 and acceptances of each chain, [chains, 3]."""
    tf, layer = chain_of(config)
    call = tf.function(lambda: layer({}), jit_compile=config.use_xla, autograph=False)
    return np.stack([call().numpy() for _ in range(chains)]).astype(np.float64) / config.hmc_steps


def numpy_moments(config: Hmc, chains: int) -> Array:
    """Return the same from a Hamiltonian Monte Carlo in NumPy, with all chains in parallel."""
    random = np.random.RandomState(1)

    def slope(x: Array) -> Array:
        return -1 - 2 * x

    x = np.full(chains, START)
    sums = np.zeros((3, chains))
    for _ in range(config.hmc_steps):
        momentum = random.normal(size=chains)
        y, p = x, momentum + STEP_SIZE / 2 * slope(x)
        for step in range(config.leapfrog_steps):
            y = y + STEP_SIZE * p
            last = step == config.leapfrog_steps - 1
            p = p + STEP_SIZE * (0.5 if last else 1.0) * slope(y)
        change = (-y - y**2 - p**2 / 2) - (-x - x**2 - momentum**2 / 2)
        accepted = np.log(random.uniform(size=chains)) < change
        x = np.where(accepted, y, x)
        sums += np.stack([x, x**2, accepted])
    return np.transpose(sums) / config.hmc_steps


def test_samples_have_the_exact_mean_and_variance() -> None:
    # Not the default number of leapfrog steps, to show that the option counts.
    config = Hmc(hmc_steps=TRANSITIONS, leapfrog_steps=3)
    found, reference = moments(config, CHAINS), numpy_moments(config, CHAINS)
    # Chains are independent, so their spread is the error of their mean, correlations included.
    error = found.std(axis=0, ddof=1) / np.sqrt(CHAINS)
    mean, square, acceptance = found.mean(axis=0)
    assert error[0] < 0.01 and error[1] < 0.01
    assert abs(mean - -0.5) < 4 * error[0]
    assert abs(square - (0.5 + 0.25)) < 4 * error[1]  # variance plus squared mean
    both = np.hypot(error, reference.std(axis=0, ddof=1) / np.sqrt(CHAINS))
    assert abs(acceptance - reference.mean(axis=0)[2]) < 4 * both[2]
    # As strongly correlated as the reference: not more random, and not less.
    assert 0.5 < error[0] / (reference.std(axis=0, ddof=1)[0] / np.sqrt(CHAINS)) < 2


@pytest.mark.parametrize("system", ["host", "ipu"])
def test_every_chain_draws_other_numbers_and_a_new_step_the_same(system: str) -> None:
    config = Hmc(hmc_steps=50, system=system)
    first = moments(config, 3)
    assert len({tuple(chain) for chain in first}) == 3
    np.testing.assert_array_equal(moments(config, 3), first)


@pytest.mark.parametrize("system", ["ipu", "host"])
def test_an_ipu_does_not_draw_full_range_integers(system: str) -> None:
    """TensorFlow maps that to RngBitGenerator, which an IPU's XLA lacks."""
    tf, layer = chain_of(Hmc(hmc_steps=5, system=system))
    graph = tf.function(lambda: layer({}), autograph=False).get_concrete_function().graph
    functions = graph.as_graph_def().library.function
    found = {node.op for function in functions for node in function.node_def}
    all_integers = "StatelessRandomUniformFullIntV2" in found
    assert all_integers is (system == "host")


def test_every_transition_counts() -> None:
    _, layer = chain_of(Hmc(hmc_steps=1))
    x, square, accepted = layer({}).numpy()
    assert square == pytest.approx(x**2, rel=1e-6)
    assert (x != START) == bool(accepted)
    _, longer = chain_of(Hmc(hmc_steps=2))
    after_one, after_two = np.array([x, square, accepted]), longer({}).numpy()
    # The same numbers, so the second chain continues from the end of the first.
    x, square, accepted = after_two - after_one
    assert square == pytest.approx(x**2, abs=1e-5)
    assert accepted in (0, 1)


@pytest.mark.parametrize("xla", ["on", "off"])
def test_the_step_runs_chains_one_after_the_other(xla: str) -> None:
    config = Hmc(hmc_steps=20, xla=xla)
    chain_of(config)
    step = TensorFlowHost(StandIn()).loop(partial(hmc, config), config, config.feed(DATA))  # type: ignore[arg-type]
    step.build()
    step.compile()  # the first chain
    assert step.describe()["precision"] == "float32"
    assert step.describe()["xla"] is (xla == "on")
    sums = moments(config, 4) * config.hmc_steps
    counted = sums.sum(axis=1) if xla == "on" else sums[:, 0]
    assert step.run(3) == pytest.approx(counted[1:].sum(), rel=1e-4)
    assert int(step.layer.chains.numpy()) == 4


def test_without_tensorflow_probability_the_message_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    monkeypatch.setitem(sys.modules, "tensorflow_probability", None)
    with pytest.raises(CaseError, match="pip install tensorflow-probability"):
        hmc(Hmc(), tf, tf.float32)
