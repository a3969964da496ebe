"""The options of a network in TensorFlow Serving, and of its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Tuple

from ipubench.bench_training.application import idle
from ipubench.bench_training.application.case import Application
from ipubench.fixtures.case.options import option
from ipubench.fixtures.servers.server_options import COMPILE_ONLY, ServingOptions

BATCHING: Tuple[str, ...] = ("batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
# Options of the application that do not affect a served network. Some training options have a
# different reason below.
OF_CHECKPOINTS: Tuple[str, ...] = (
    *("checkpoint_input_dir", "checkpoint_output_dir", "ckpts_per_epoch"),
    *idle.OF_CHECKPOINTS,
)
OF_SEVERAL_IPUS: Tuple[str, ...] = (
    *("device_mapping", "pipeline_schedule", "accelerator_side_reduction"),
    "max_cross_replica_buffer_size",
)
# The server, not the export, attaches and feeds the IPU.
OF_THE_PROGRAM: Tuple[str, ...] = ("on_demand", "prefetch_depth")
UNUSED: Dict[str, str] = {
    **dict.fromkeys(idle.OF_TRAINING, "a served network is not trained"),
    **dict.fromkeys(OF_CHECKPOINTS, "a served network has random weights, of seed"),
    **dict.fromkeys(
        ("validation", *idle.OF_VALIDATION),
        "a served network is not validated; clients ask for its scores",
    ),
    **dict.fromkeys(OF_SEVERAL_IPUS, "a served network has one replica on one IPU"),
    **dict.fromkeys(OF_THE_PROGRAM, "the server attaches the IPU and feeds it"),
}


@dataclass(frozen=True)
class Serving(ServingOptions, Application):
    """One network of the application, exported at its micro batch, and its clients."""

    # The original program's name. In other programs it means micro_batch_size.
    renamed = {"batch_size": "request_batch_size"}

    mode: str = option("inference", "what is measured", choices=("inference",))
    training: bool = option(False, "a served network is not trained", choices=(False,))
    data: str = option("real", "generated or real images", choices=("generated", "real"))

    @property
    def fewest_batches(self) -> int:
        """Set by num_images and num_threads."""
        return 0

    def check(self) -> None:
        """Raise ValueError for what a server cannot do."""
        super().check()
        self.check_load(self.num_threads, not self.use_async)
        for item, reason in UNUSED.items():
            if getattr(self, item) != default(item):
                raise ValueError(f"{item} has no effect: {reason}")
        if self.compile_only and self.system != "host":
            raise ValueError(COMPILE_ONLY)
        if self.request_batch_size > self.micro_batch_size:
            raise ValueError(
                f"request_batch_size={self.request_batch_size}: a request has at most the images "
                f"that the network is exported for, micro_batch_size={self.micro_batch_size}"
            )
        if (self.replicas, self.instances, self.stages) != (1, 1, 1):
            raise ValueError(
                "replicas, instances and pipeline_splits: a served network has one replica on one "
                "IPU"
            )
        if self.batches_per_step:
            raise ValueError(
                "batches_per_step: num_images and num_threads set the requests of a round"
            )
        for item in BATCHING if not self.batches_requests else ():
            if getattr(self, item) != default(item):
                raise ValueError(
                    f"{item} has no effect: if request_batch_size and micro_batch_size are "
                    f"equal, {self.micro_batch_size}, the server makes no batches"
                )
        if self.port > 65535:
            raise ValueError(f"port={self.port}: ports end at 65535")


def default(name: str) -> Any:
    """Return the default of an option."""
    return Serving.__dataclass_fields__[name].default
