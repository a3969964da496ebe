"""What is accepted acts, or is refused: the options of the TensorFlow 2 application on an IPU.

As tests/cases/test_options_act.py has it. What a case hands to its network, recipe, schedule and
data is compared first; only where that is the same, the stand-in traces the program and runs it.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path
from typing import Any, Dict, Set

import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.rules import settled
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.runtimes.tensorflow.on_ipu import TensorFlowIpu
from tests.cases.test_options_act import CHOSEN, RECORDED, changed, plain
from tests.doubles.tensorflow_ipu import recorder
from tests.runtimes.tensorflow.application.test_on_ipu import PAIR, SMALL, dataset, feed_of
from tests.support.kernels import no_images
from tests.support.tensorflow_ipu import HARDWARE, install

pytestmark = pytest.mark.framework

#: What the meter does, without asking the runtime: it compiles and measures nothing.
OF_THE_METER = {"compile_only"}
#: Values of options that other words of a command line would not find.
PARAMETERS: Dict[str, Any] = {
    "optimizer_params": Parameters({"momentum": 0.5}),
    "lr_schedule_params": Parameters({"initial_learning_rate": 4e-3, "epochs_to_total_decay": 2}),
    "lr_warmup_params": Parameters({"warmup_mode": "shift", "warmup_epochs": 1}),
    "norm_layer": Parameters({"name": "custom_batch_norm", "momentum": 0.5}),
    "device_mapping": (1, 0),
    "available_memory_proportion": (15.0,),
}
TRAINING = dataclasses.replace(SMALL, replicas=1, validation=False)
CASES = {
    "training": TRAINING,
    "pipeline": dataclasses.replace(TRAINING, gradient_accumulation_count=8, **PAIR),
    "two replicas": dataclasses.replace(TRAINING, replicas=2),
    "two instances": dataclasses.replace(TRAINING, replicas=2, instances=2),
    "trained and validated": dataclasses.replace(TRAINING, validation=True),
    "validation": dataclasses.replace(TRAINING, training=False, validation=True),
}


@pytest.fixture(autouse=True)
def tf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    module = install(monkeypatch)
    monkeypatch.setattr("ipubench.fixtures.data.tfds.pipeline.dataset", dataset)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", None)
    return module


def handed(config: Application) -> str:
    """Return what a case hands over, before any framework is asked."""
    feed = config.feed(Data(no_images))
    validation = config.validation_feed(Data(no_images))() if config.validation else None
    shared = plan(config, "ipu", frozenset({0, 1}))
    schedule = config.program if config.training else None
    return plain(
        *(config.classifier(), config.recipe if config.training else None, schedule, shared),
        *(config.batches, config.validation_batches if config.validation else None),
        *((one.describe(), one.batch_size, one.image_shape) for one in (feed, validation) if one),
    )


def asked(config: Application, folder: Path) -> str:
    """Return what the SDK's TensorFlow is asked for, and what the run leaves on the disk."""
    recorder.reset()
    tempfile.tempdir = str(folder)  # where checkpoints without a folder of their own go
    try:
        step: Any = TensorFlowIpu(HARDWARE).application(
            config.classifier(),
            config.recipe,
            config,
            feed_of(config, config.training),
            lambda: feed_of(config, training=False),
        )
        step.build()
        step.compile()
        described = step.describe()
        step()
        while config.training and step.progress.left:
            step()
        facts = step.finish()
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.npz"))
        step.close()
        files += sorted(str(path.relative_to(folder)) for path in folder.rglob("*.npz"))
    except (CaseError, DeviceError) as error:
        return str(error)
    facts.pop("training_seconds", None)
    found = plain(recorder.calls, recorder.configured, described, facts, files)
    # Names of temporary folders, with the date.
    return re.sub(r"ipubench-[a-z]+-[\w-]+", "temporary", found)


@pytest.mark.parametrize("name", CASES)
def test_every_option_of_the_application_acts(name: str, tmp_path: Path) -> None:
    config = settled(CASES[name])
    config.check()
    before = {"handed": handed(config), "asked": asked(config, tmp_path)}
    names = {item.name for item in dataclasses.fields(config)}
    found: Set[str] = set()
    for option in sorted(names - CHOSEN - RECORDED - OF_THE_METER):
        if not _acts(config, option, before, tmp_path):
            found.add(option)
    assert found == set()


def _acts(config: Application, option: str, before: Dict[str, str], folder: Path) -> bool:
    ones = changed(config, option)
    if option in PARAMETERS:
        ones = [dataclasses.replace(config, **{option: PARAMETERS[option]})]
    # What a rule takes back, with a sentence for the user, is declared.
    ones = [one for one in ones if settled(one) != config]
    if not ones or any(handed(one) != before["handed"] for one in ones):
        return True
    for number, one in enumerate(ones):
        place = folder / option / str(number)
        place.mkdir(parents=True)
        if asked(one, place) != before["asked"]:
            return True
    return False
