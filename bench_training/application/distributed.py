"""What poprun was told, where a user starts the suite by it, and how the options give way.

He may start one instance. The suite's own start of poprun (``instances`` above 1) tells it what the
options say.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.runtimes.data_parallel import initialise_popdist, popdist_instance
from ipubench.fixtures.runtimes.tensorflow.application_options import ApplicationOptions

Config = TypeVar("Config", bound=ApplicationOptions)


class Job(NamedTuple):
    """What poprun was told."""

    replicas: int  # of all instances
    instances: int
    ipus_per_replica: int


def poprun_job() -> Optional[Job]:
    """Return the job that this process is an instance of; None where poprun has not started it."""
    if initialise_popdist() is None:
        return None
    popdist = popdist_instance()
    return Job(
        int(popdist.getNumTotalReplicas()),
        int(popdist.getNumInstances()),
        int(popdist.getNumIpusPerReplica()),
    )


def under_poprun(config: Config, job: Optional[Job]) -> Config:
    """Return the configuration with the job's replicas and instances, which win, with a warning.

    Raises CaseError where the two cannot be together.
    """
    if job is None:
        return config
    changed, texts = changes(config, job)
    for text in texts:
        warnings.warn(text, stacklevel=2)
    try:
        # The job decides how many IPUs there are, not the system that a preset was written for.
        dataclasses.replace(changed, system="ipu").check()
    except ValueError as error:
        raise CaseError(f"{config.name} under poprun: {error}") from error
    if config.training:
        _check_ipus("training", config.shards, job)
    if config.validation:
        _check_ipus("validation", config.validation_shards, job)
    return changed


def changes(config: Config, job: Job) -> Tuple[Config, List[str]]:
    """Return the configuration with the job's numbers, and a sentence for each that differed."""
    fits = config.measured_replicas == job.replicas
    replicas = config.replicas if fits else job.replicas
    values: Dict[str, Any] = {"replicas": replicas, "instances": job.instances}
    # Where there is no training, the IPUs of a pipelined replica would hold further copies.
    if config.validation_num_replicas or not (fits or config.training):
        values["validation_num_replicas"] = job.replicas
    different = {name: new for name, new in values.items() if getattr(config, name) != new}
    texts = [
        f"{name}={getattr(config, name)} is {new} instead: poprun was told so"
        for name, new in different.items()
    ]
    return dataclasses.replace(config, **different), texts


def _check_ipus(phase: str, shards: int, job: Job) -> None:
    if shards != job.ipus_per_replica:
        raise CaseError(
            f"{phase} has {shards} IPUs a replica, and poprun was told --ipus-per-replica="
            f"{job.ipus_per_replica}, which holds for the whole run: give it {shards}, and where "
            "training is a pipeline also pipeline_validation_model=true or validation=false"
        )
