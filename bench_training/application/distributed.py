"""Adapts the options to poprun's arguments, if a user starts the suite with poprun.

A user may start one instance. With ``instances`` above 1, the suite starts poprun itself, with the
values of the options.
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
    """The values of poprun's arguments."""

    replicas: int  # of all instances
    instances: int
    ipus_per_replica: int


def poprun_job() -> Optional[Job]:
    """Return the job of this process; None if poprun did not start it."""
    if initialise_popdist() is None:
        return None
    popdist = popdist_instance()
    return Job(
        int(popdist.getNumTotalReplicas()),
        int(popdist.getNumInstances()),
        int(popdist.getNumIpusPerReplica()),
    )


def under_poprun(config: Config, job: Optional[Job]) -> Config:
    """Return the configuration with the job's replicas and instances, and warn of changes.

    Raises CaseError if that is not possible.
    """
    if job is None:
        return config
    changed, texts = changes(config, job)
    for text in texts:
        warnings.warn(text, stacklevel=2)
    try:
        # The job determines the number of IPUs, not the system of the preset.
        dataclasses.replace(changed, system="ipu").check()
    except ValueError as error:
        raise CaseError(f"{config.name} under poprun: {error}") from error
    if config.training:
        _check_ipus("training", config.shards, job)
    if config.validation:
        _check_ipus("validation", config.validation_shards, job)
    return changed


def changes(config: Config, job: Job) -> Tuple[Config, List[str]]:
    """Return the configuration with the job's numbers, and a sentence for each change."""
    fits = config.measured_replicas == job.replicas
    replicas = config.replicas if fits else job.replicas
    values: Dict[str, Any] = {"replicas": replicas, "instances": job.instances}
    # Without training, the IPUs of a pipelined replica would hold additional replicas.
    if config.validation_num_replicas or not (fits or config.training):
        values["validation_num_replicas"] = job.replicas
    different = {name: new for name, new in values.items() if getattr(config, name) != new}
    texts = [
        f"{name}={getattr(config, name)} becomes {new}, as given to poprun"
        for name, new in different.items()
    ]
    return dataclasses.replace(config, **different), texts


def _check_ipus(phase: str, shards: int, job: Job) -> None:
    if shards != job.ipus_per_replica:
        raise CaseError(
            f"{phase} has {shards} IPUs a replica, but poprun was given --ipus-per-replica="
            f"{job.ipus_per_replica} for the whole run: give it {shards}, and if "
            "training is a pipeline also pipeline_validation_model=true or validation=false"
        )
