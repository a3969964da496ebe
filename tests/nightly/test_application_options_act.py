"""What is accepted acts, or is refused: the options of the TensorFlow 2 application on an IPU.

As tests/nightly/test_options_act.py has it, and the reverse too: what is declared idle changes
nothing. What a case hands to its network, recipe, schedule and data is compared first, then how it
configures the IPUs and what it asks for as it is built; only where all are the same, the stand-in
traces the program and runs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import pytest

from ipubench.bench_training.application.case import Application
from ipubench.bench_training.application.rules import settled
from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.case.values import Parameters
from ipubench.fixtures.data.provider import Data
from ipubench.fixtures.data.tfds.feed import ApplicationFeed
from ipubench.fixtures.devices.base import DeviceError
from ipubench.fixtures.instances.plan import plan
from ipubench.fixtures.poplar.options import TF_FLAGS
from ipubench.fixtures.runtimes import data_parallel
from tests.doubles.tensorflow_ipu import recorder
from tests.nightly.options_act import CHOSEN, RECORDED, others, plain
from tests.support.application_ipu import (
    BATCH,
    PAIR,
    SMALL,
    dataset,
    feed_of,
    settings_of,
    start,
    step_of,
)
from tests.support.kernels import no_images
from tests.support.tensorflow_ipu import SYNTHETIC, install

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
    "first_ckpt_epoch": Fraction(1, 2),
}
TRAINING = dataclasses.replace(SMALL, num_epochs=1, validation=False)
TWO = dataclasses.replace(TRAINING, replicas=2)
CASES = {
    "training": TRAINING,
    "pipeline": dataclasses.replace(TRAINING, gradient_accumulation_count=4, **PAIR),
    "two instances, validated": dataclasses.replace(
        TWO, instances=2, ckpt_all_instances=True, validation=True
    ),
    "no checkpoints": dataclasses.replace(TWO, validation=True, ckpts_per_epoch=Fraction(0)),
    "validation": dataclasses.replace(TWO, training=False, validation=True),
}

#: Options that may change nothing because no checkpoints are written. The schedule, which is
#: compared as it is handed over, and the folder of checkpoints alone know whether some are.
ABOUT_CHECKPOINTS = re.compile("ckpt|checkpoint|clean_dir|validation")
#: Options of what the host does with a checkpoint, and of where the variables of a loop are kept:
#: one run shows it for all.
SHOWN_ONCE = {
    "pipeline": {"checkpoint_output_dir", "clean_dir"},
    "two instances, validated": {
        *("checkpoint_output_dir", "clean_dir", "optimizer_state_offloading"),
    },
}
#: (option, declared reason) of which a case has found that it is true: once is enough.
FOUND_IDLE: Set[Tuple[str, str]] = set()
#: What is idle in other cases: how they differ from the training, and other values of options.
IDLE: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {
    "training": (
        {
            "model_name": "toy_model",
            "lr_schedule": "const",
            "lr_schedule_params": Parameters({"initial_learning_rate": 8e-3}),
            "checkpoint_output_dir": "here",
        },
        {"norm_layer": PARAMETERS["norm_layer"], "lr_staircase": True, "clean_dir": False},
    ),
    "synthetic": (
        {"replicas": 2, "validation": True, "data": "synthetic"},
        {"validation_micro_batch_size": BATCH + 1, "validation_num_replicas": 1},
    ),
    "validation": (
        {"training": False, "validation": True, "validation_micro_batch_size": BATCH},
        {"micro_batch_size": BATCH + 1},
    ),
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
    # What is shared by replicas is the configuration's of the IPUs.
    network = dataclasses.replace(config.network, replica_group=1)
    return plain(
        *(network, config.seed, plan(config, "ipu", frozenset({0, 1}))),
        *(trained(config) if config.training else ()),
        config.validation_batches if config.validation else None,
        *((one.describe(), one.batch_size, one.image_shape) for one in (feed, validation) if one),
    )


def trained(config: Application) -> List[Any]:
    """Return the recipe, with each update's rate in place of how it is found, and the schedule."""
    recipe = vars(config.recipe).items()
    rates = [config.recipe.rate(update) for update in range(config.program.total_updates)]
    rest = {name: value for name, value in recipe if name != "learning_rate"}
    return [rates, rest, config.program, config.batches]


def configured(config: Application) -> str:
    """Return how the IPUs are configured for the phases that run."""
    found = []
    for training in (True, False):
        if config.training if training else config.validation:
            recorder.reset()
            found.append(settings_of(config, training))
    return plain(found)


def fed(config: Application, training: bool) -> ApplicationFeed:
    batches = config.batches if training else config.validation_batches
    return dataclasses.replace(feed_of(config, training), batch_size=batches.micro_batch_size)


def built(config: Application) -> str:
    """Return what the SDK's TensorFlow is asked for before a program is traced."""
    recorder.reset()
    step = step_of(config, feed=fed)
    described = step.describe()
    del described["options"]  # as they were given, whoever reads them
    found = plain(recorder.calls, recorder.configured, described)
    step.close()
    return without_dates(found)


def arguments(config: Application) -> str:
    """Return how a pipeline is called, which is not traced for that; a loop has no more to tell."""
    if config.stages == 1:
        return "a loop"
    recorder.reset()
    recorder.only_arguments = True
    step = step_of(config, feed=fed)
    step._run = step._tf.function(step._program, autograph=False, jit_compile=True)
    step._execute()
    found = plain(recorder.calls)
    step.close()
    return without_dates(found)


def asked(config: Application) -> str:
    """Return what the SDK's TensorFlow is asked for, and what the run leaves on the disk."""
    recorder.reset()
    recorder.by_xla = False  # tests of the runtime show that XLA takes it
    step = step_of(config, feed=fed)
    step.compile()
    described = step.describe()
    del described["options"]  # as they were given, whoever reads them
    step()
    while config.training and step.progress.left:
        step()
    facts = step.finish()
    left = [on_disk()]
    step.close()
    left.append(on_disk())
    facts.pop("training_seconds", None)
    return without_dates(plain(recorder.calls, recorder.configured, described, facts, left))


def without_dates(text: str) -> str:
    """Return a text without the names of temporary folders, which have the date."""
    return re.sub(r"ipubench-[a-z]+-[\w-]+", "temporary", text)


def on_disk() -> List[str]:
    """Return what is in the current folder, less what TensorFlow writes as it traces."""
    # TensorFlow writes Python there, and Python compiles it: __autograph_..., __pycache__. Two such
    # signs may be in the random part of a temporary folder's name too.
    theirs = re.compile(r"(^|/)__")
    return sorted(str(path) for path in Path().rglob("*") if not theirs.search(str(path)))


def accepted(config: Application, option: str) -> List[Application]:
    """Return the case with other values of an option, less those that a rule refuses.

    What a rule takes back, with a sentence for the user, is no other value.
    """
    values = [PARAMETERS[option]] if option in PARAMETERS else others(config, option)
    found = []
    for value in values:
        one = dataclasses.replace(config, **{option: value})
        with contextlib.suppress(ValueError):
            one.check()
            found.append(settled(one))
    return [one for one in found if one != config]


def together(config: Application, ones: Dict[str, Application]) -> Iterator[Application]:
    """Yield the case with the options that ``ones`` change and say are idle: many at once.

    Some of them are refused together, or are not idle.
    """
    changed = config
    names: Set[str] = set()
    for option, one in ones.items():
        more = settled(dataclasses.replace(changed, **{option: getattr(one, option)}))
        names.add(option)
        try:
            more.check()
            fits = names <= set(more.idle())
        except ValueError:
            fits = False
        if not fits:
            yield changed
            more, names = one, {option}
        changed = more
    if names:
        yield changed


class Asked:
    """What a case asks for, in steps of rising cost; nothing is asked for twice."""

    def __init__(self, config: Application, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = config
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._built = ""
        self._arguments = ""
        self._ran = ""

    def same(self, other: Asked) -> bool:
        """Return whether the other asks for the same; one that is refused does not."""
        for first in (handed, configured):
            if first(self.config) != first(other.config):
                return False
        try:
            for costly in (Asked.built, Asked.arguments, Asked.ran):
                if costly(self) != costly(other):
                    return False
            return True
        except (CaseError, DeviceError):
            return False

    def built(self) -> str:
        if not self._built:
            self._built = self._in_folder("built", built)
        return self._built

    def arguments(self) -> str:
        if not self._arguments:
            self._arguments = self._in_folder("arguments", arguments)
        return self._arguments

    def ran(self) -> str:
        if not self._ran:
            self._ran = self._in_folder("ran", asked)
        return self._ran

    def _in_folder(self, name: str, ask: Callable[[Application], str]) -> str:
        """Return what is asked for in an empty folder."""
        folder = self._folder / name
        folder.mkdir(parents=True)
        self._monkeypatch.chdir(folder)
        # As a new process, which makes its one strategy.
        data_parallel._strategy_of.cache_clear()
        return ask(self.config)


@pytest.mark.parametrize("name", CASES)
def test_every_option_of_the_application_acts_or_is_declared_idle(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = settled(CASES[name])
    config.check()
    if config.instances > 1:
        start(monkeypatch, 1, config.instances, config.replicas, config.shards)
    monkeypatch.setattr(tempfile, "tempdir", ".")  # where checkpoints without a folder go
    before = Asked(config, tmp_path / "before", monkeypatch)
    options = {item.name for item in dataclasses.fields(config)} - CHOSEN - RECORDED - OF_THE_METER
    if not config.ckpts_per_epoch:  # the others are those of the case before
        options = {option for option in options if ABOUT_CHECKPOINTS.search(option)}
    options -= SHOWN_ONCE.get(name, set())
    idle: Set[str] = set()
    declared: Dict[str, Application] = {}
    for option in sorted(options):
        ones = accepted(config, option)
        reasons = {one.idle().get(option, "") for one in ones}
        if ones and "" not in reasons:
            if not {(option, reason) for reason in reasons} <= FOUND_IDLE:
                declared[option] = ones[0]  # enough to find that it acts
            continue
        folder = tmp_path / option
        others = (Asked(one, folder / str(n), monkeypatch) for n, one in enumerate(ones))
        if ones and all(before.same(other) for other in others):
            idle.add(option)
    assert sorted(idle) == []
    for n, one in enumerate(together(config, declared)):
        values = {option: getattr(one, option) for option in declared}
        assert before.same(Asked(one, tmp_path / f"declared-{n}", monkeypatch)), str(values)
    FOUND_IDLE.update((option, one.idle()[option]) for option, one in declared.items())
    if not declared:  # else the same was asked for again
        again = Asked(config, tmp_path / "again", monkeypatch)
        assert before.same(again), "the same case asks for two things"


@pytest.mark.parametrize("name", IDLE)
def test_more_that_is_declared_changes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changes, values = IDLE[name]
    config = dataclasses.replace(TRAINING, **changes)
    other = dataclasses.replace(config, **values)
    other.check()
    assert set(values) <= set(other.idle())
    if config.data == "synthetic":
        monkeypatch.setenv(TF_FLAGS, SYNTHETIC)
    monkeypatch.setattr(tempfile, "tempdir", ".")
    one, two = (Asked(c, tmp_path / n, monkeypatch) for c, n in ((config, "one"), (other, "two")))
    assert one.ran() == two.ran()
