"""Hamiltonian Monte Carlo with TensorFlow Probability on one density over a line.

The target is exp(-x - x^2), a Gaussian of mean -0.5 and variance 0.5. A batch is one chain of
hmc_steps transitions from x = 1. Each has a new momentum, leapfrog_steps steps of size 1 and a
Metropolis decision, and depends only on x. There is no input. An item is one transition ("hmc
step").
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Iterator, Tuple

from ipubench.fixtures.case.cases import cases
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.options import option
from ipubench.fixtures.data.feeds import ArrayFeed
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.runtimes.kernel_options import CompiledOptions

STEP_SIZE = 1.0
START = 1.0


@dataclass(frozen=True)
class Hmc(CompiledOptions):
    """Options of the chain; defaults of the original program, which has no others."""

    name: str = option("hmc", "first part of the case's identifier")
    mode: str = option("inference", "a chain is not trained", choices=("inference",))
    data: str = option("synthetic", "a chain has no input", choices=("synthetic",))
    precision: str = option("32.32", "bits of the state", choices=("32.32",))
    batches_per_step: int = option(1, "chains run on the device per host call", minimum=1)
    steps: int = option(100, "timed host calls; a stop rule decides unless given", minimum=1)
    hmc_steps: int = option(10000, "transitions of a chain", minimum=1)
    leapfrog_steps: int = option(5, "leapfrog steps of a transition", minimum=1)
    report_hw_cycle_count: bool = option(False, "report the device's cycles", needs_ipu=True)
    xla: str = option(
        "auto", "a host's chain compiled by XLA; auto is on", choices=("auto", "on", "off")
    )

    @property
    def use_xla(self) -> bool:
        """Whether XLA compiles the chain of scalars, which was measured to be 300 times as fast."""
        return self.xla != "off"

    def check(self) -> None:
        """Raise ValueError for what a single chain without input cannot have."""
        super().check()
        if self.system not in ("host", "ipu"):
            raise ValueError(f"system {self.system}: hmc has host and ipu")
        if self.replicas > 1:
            raise ValueError("replicas: hmc is one chain, only 1 is possible")
        if self.system == "ipu" and self.xla == "off":
            raise ValueError("xla off: an IPU runs programs compiled by XLA only")

    def feed(self, data: Data) -> ArrayFeed:
        """Return a feed without tensors."""
        return data.arrays(self, ())


def hmc(config: Hmc, tf: Any, dtype: Any) -> Any:
    """Return the chain: no inputs -> the sums of x, of x^2 and of acceptances, float32 [3]."""
    tfp = probability()

    def log_density(x: Any) -> Any:
        return -x - x * x

    kernel = tfp.mcmc.HamiltonianMonteCarlo(
        log_density, step_size=STEP_SIZE, num_leapfrog_steps=config.leapfrog_steps
    )

    class Chain(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            # Each chain draws other numbers, so that no result is reused.
            self.chains = tf.Variable(0, trainable=False, dtype=tf.int32)

        def __call__(self, batch: Dict[str, Any]) -> Any:
            chain = self.chains.assign_add(1)

            def transition(step: Any, x: Any, sums: Any) -> Tuple[Any, Any, Any]:
                results = kernel.bootstrap_results(x)
                x, results = kernel.one_step(x, results, seed=tf.stack([chain, step]))
                accepted = tf.cast(results.is_accepted, dtype)
                return step + 1, x, sums + tf.stack([x, x * x, accepted])

            start = (tf.constant(0), tf.constant(START, dtype), tf.zeros([3], dtype))
            with contextlib.nullcontext() if config.system == "host" else seeds_of_ipus(tf):
                _, _, sums = tf.while_loop(
                    lambda step, *_: step < config.hmc_steps,
                    transition,
                    start,
                    parallel_iterations=1,
                )
            return sums

    return Chain()


@contextlib.contextmanager
def seeds_of_ipus(tf: Any) -> Iterator[None]:
    """Make TensorFlow Probability split seeds with an operation that IPUs support.

    Its own operation draws from all integers and becomes XLA's RngBitGenerator, which the SDK's
    TensorFlow does not have (compiler/plugin/poplar/driver/visitors/visitor_base.h).
    """
    from tensorflow_probability.python.internal import samplers

    def split_seed(seed: Any, n: int = 2) -> Any:
        return tf.unstack(tf.random.stateless_uniform([n, 2], seed, 0, tf.int32.max, tf.int32))

    own = samplers.split_seed
    samplers.split_seed = split_seed
    try:
        yield
    finally:
        samplers.split_seed = own


def probability() -> Any:
    """Import tensorflow_probability. Raises CaseError if it is missing."""
    try:
        import tensorflow_probability as tfp
    except ImportError as error:
        raise CaseError(
            "hmc needs a TensorFlow Probability that fits this TensorFlow; on a host "
            "pip install tensorflow-probability tf-keras, for the TensorFlow of the Poplar SDK "
            f"pip install tensorflow-probability==0.14.1 ({error})"
        ) from error
    return tfp


@cases(Hmc(), system=("host", "ipu"))
def bench_hmc(config: Hmc, tensorflow: Any, data: Data, meter: Any) -> None:
    """Time chains."""
    step = tensorflow.loop(partial(hmc, config), config, config.feed(data))
    meter(step, items=config.hmc_steps, unit="hmc steps")
