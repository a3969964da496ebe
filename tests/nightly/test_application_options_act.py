"""Options of the TensorFlow 2 application on an IPU act, or are refused or declared idle.

As in tests/nightly/test_options_act.py, and also the reverse: options that are declared idle change
nothing. The arguments for the network, recipe, schedule and data are compared first, then the
configuration of the IPUs and the calls while it is built. Only if all are equal, the stand-in
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
from ipubench.fixtures.poplar.poplar_options import TF_FLAGS
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
from tests.support.recipes import recipe_of
from tests.support.tensorflow_ipu import SYNTHETIC, install

pytestmark = pytest.mark.framework

#: Used by the meter only: the runtime is not involved in compiling without measuring.
OF_THE_METER = {"compile_only"}
#: Values of options that their types do not suggest.
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

#: Options that may have no effect because no checkpoints are written, which only the schedule
#: (compared as an argument) and the checkpoint folder show.
ABOUT_CHECKPOINTS = re.compile("ckpt|checkpoint|clean_dir|validation")
#: Options for the host's handling of a checkpoint and for the place of a loop's variables: one run
#: covers all.
SHOWN_ONCE = {
    "pipeline": {"checkpoint_output_dir", "clean_dir"},
    "two instances, validated": {
        *("checkpoint_output_dir", "clean_dir", "optimizer_state_offloading"),
    },
}
#: (option, declared reason) pairs that a case has confirmed; once is enough.
FOUND_IDLE: Set[Tuple[str, str]] = set()
#: Options that are idle in other cases: how those differ from the training, and other values.
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
    """Return the arguments of a case, before any framework is involved."""
    feed = config.feed(Data(no_images))
    validation = config.validation_feed(Data(no_images))() if config.validation else None
    # The configuration of the IPUs contains what replicas share.
    network = dataclasses.replace(config.network, replica_group=1)
    return plain(
        *(network, config.seed, plan(config, "ipu", frozenset({0, 1}))),
        *(trained(config) if config.training else ()),
        config.validation_batches if config.validation else None,
        *((one.describe(), one.batch_size, one.image_shape) for one in (feed, validation) if one),
    )


def trained(config: Application) -> List[Any]:
    """Return the schedule and the recipe, with each update's rate instead of its computation."""
    rates = [config.rate(update) for update in range(config.program.total_updates)]
    rest = [config.accelerator_side_preprocess, config.fused_preprocessing]
    return [rates, recipe_of(config), rest, config.program, config.batches]


def configured(config: Application) -> str:
    """Return the configuration of the IPUs for the phases that run."""
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
    """Return the requests to the SDK's TensorFlow before a program is traced."""
    recorder.reset()
    step = step_of(config, feed=fed)
    described = step.describe()
    del described["options"]  # as given, whichever code reads them
    found = plain(recorder.calls, recorder.configured, described)
    step.close()
    return without_dates(found)


def arguments(config: Application) -> str:
    """Return the arguments of a pipeline, without tracing it; a loop has no others."""
    if config.stages == 1:
        return "a loop"
    recorder.reset()
    recorder.only_arguments = True
    step = step_of(config, feed=fed)
    program = step.program
    program._run = program._tf.function(program._program, autograph=False, jit_compile=True)
    program._execute()
    found = plain(recorder.calls)
    step.close()
    return without_dates(found)


def asked(config: Application) -> str:
    """Return the requests to the SDK's TensorFlow and the files that the run leaves."""
    recorder.reset()
    recorder.by_xla = False  # the runtime's tests show that XLA accepts it
    step = step_of(config, feed=fed)
    step.compile()
    described = step.describe()
    del described["options"]  # as given, whichever code reads them
    step()
    while config.training and step.progress.left:
        step()
    facts = step.finish().facts
    left = [on_disk()]
    step.close()
    left.append(on_disk())
    facts.pop("training_seconds", None)
    return without_dates(plain(recorder.calls, recorder.configured, described, facts, left))


def without_dates(text: str) -> str:
    """Return a text without the names of temporary folders, which contain the date."""
    return re.sub(r"ipubench-[a-z]+-[\w-]+", "temporary", text)


def on_disk() -> List[str]:
    """Return the files in the current folder, except those that TensorFlow writes while tracing."""
    # TensorFlow writes Python there, and Python compiles it: __autograph_..., __pycache__. The
    # random part of a temporary folder's name may also contain two underscores.
    theirs = re.compile(r"(^|/)__")
    return sorted(str(path) for path in Path().rglob("*") if not theirs.search(str(path)))


def accepted(config: Application, option: str) -> List[Application]:
    """Return the case with other values of an option, without those that a rule refuses.

    A value that a rule resets with a warning does not count as another value.
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
    """Yield the case with many idle options changed at once.

    Some combinations are refused, or turn out not to be idle.
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
    """The requests of a case, cheapest first; each is made once."""

    def __init__(self, config: Application, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = config
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._built = ""
        self._arguments = ""
        self._ran = ""

    def same(self, other: Asked) -> bool:
        """Return whether the other case makes the same requests; a refused one does not."""
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
        """Return the requests made in an empty folder."""
        folder = self._folder / name
        folder.mkdir(parents=True)
        self._monkeypatch.chdir(folder)
        # Like a new process, which creates its only strategy.
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
    monkeypatch.setattr(tempfile, "tempdir", ".")  # the place of checkpoints without a folder
    before = Asked(config, tmp_path / "before", monkeypatch)
    options = {item.name for item in dataclasses.fields(config)} - CHOSEN - RECORDED - OF_THE_METER
    if not config.ckpts_per_epoch:  # the others are those of the previous case
        options = {option for option in options if ABOUT_CHECKPOINTS.search(option)}
    options -= SHOWN_ONCE.get(name, set())
    idle: Set[str] = set()
    declared: Dict[str, Application] = {}
    for option in sorted(options):
        ones = accepted(config, option)
        reasons = {one.idle().get(option, "") for one in ones}
        if ones and "" not in reasons:
            if not {(option, reason) for reason in reasons} <= FOUND_IDLE:
                declared[option] = ones[0]  # enough to see that it acts
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
    if not declared:  # otherwise the same requests were made again
        again = Asked(config, tmp_path / "again", monkeypatch)
        assert before.same(again), "two requests of one case differ"


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
