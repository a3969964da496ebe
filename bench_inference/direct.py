"""The load options of a network in the measuring process, without a server."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.fixtures.instances.plan import instances_of
from ipubench.fixtures.servers.load import CLOSED
from ipubench.fixtures.servers.options import LoadOptions


@dataclass(frozen=True)
class DirectLoad(LoadOptions):
    """One network under a closed loop or a scenario."""

    def check(self) -> None:
        """Raise ValueError if a scenario contradicts other options."""
        super().check()
        self.check_load(clients=1, one_by_one=True)
        if self.scenario == CLOSED:
            return
        if instances_of(self) != 1 or self.replicas != 1:
            raise ValueError(
                f"scenario={self.scenario}: it needs one process with one replica; set instances=1 "
                "and replicas=1"
            )
        if getattr(self, "pipeline_splits", ()):
            raise ValueError(
                f"scenario={self.scenario}: a pipeline works on several batches at once; take a "
                "case without pipeline_splits"
            )
        if self.data == "real":
            raise ValueError(
                f"scenario={self.scenario}: a request's images are prepared beforehand; use "
                "data=synthetic or data=generated"
            )
        if self.system != "host" and self.batches_per_step != 1:
            raise ValueError(
                f"scenario={self.scenario}: a request is one batch; set batches_per_step=1"
            )
