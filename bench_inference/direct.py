"""The options of a network that answers questions in the measuring process, without a server."""

from __future__ import annotations

from dataclasses import dataclass

from ipubench.fixtures.instances.plan import instances_of
from ipubench.fixtures.servers.load import CLOSED
from ipubench.fixtures.servers.options import LoadOptions


@dataclass(frozen=True)
class DirectLoad(LoadOptions):
    """One network, asked batch after batch or when questions are due."""

    def check(self) -> None:
        """Refuse a scenario of what does not wait for questions."""
        super().check()
        self.check_load(clients=1, one_by_one=True)
        if self.scenario == CLOSED:
            return
        if instances_of(self) != 1 or self.replicas != 1:
            raise ValueError(
                f"scenario={self.scenario}: one process with one replica answers; set instances=1 "
                "and replicas=1"
            )
        if getattr(self, "pipeline_splits", ()):
            raise ValueError(
                f"scenario={self.scenario}: a pipeline works on several batches at once; take a "
                "case without pipeline_splits"
            )
        if self.data == "real":
            raise ValueError(
                f"scenario={self.scenario}: the images of a question are ready; take "
                "data=synthetic or data=generated"
            )
        if self.system != "host" and self.batches_per_step != 1:
            raise ValueError(
                f"scenario={self.scenario}: a question is one batch; set batches_per_step=1"
            )
