"""An IPU case of several instances, from the command line to the record.

poprun and PopDist are stand-ins, and the case needs no IPU.
"""

from __future__ import annotations

import json
import sys

import pytest

from tests.doubles import popdist as double
from tests.support.harness import Project, refused, run_pytest
from tests.support.instances import notes_of, record_of, with_instances

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: run it there")

# The module popdist of a stand-in's instance.
POPDIST = """
import json, os
from tests.doubles import popdist as double

job = json.loads(os.environ.get("DOUBLE_POPDIST", "{}"))
double.recorder.started = bool(job)
for name, value in job.items():
    setattr(double.recorder, name, value)
globals().update({name: getattr(double, name) for name in double.OFFERED})
"""


@pytest.fixture
def together(project: Project) -> Project:
    """A project in which the SDK seems to be installed."""
    with_instances(project)
    modules = project.folder / "sdk"
    modules.mkdir()
    (modules / "popdist.py").write_text(POPDIST)
    (modules / "poptorch.py").write_text("raise AssertionError('no case of this test needs it')\n")
    path = f"{modules}:{project.environment['PYTHONPATH']}"
    project.environment.update(PYTHONPATH=path, POPLAR_SDK_ENABLED="/opt/sdk")
    return project


@pytest.mark.entry_point
def test_poprun_starts_the_instances_of_one_job(together: Project) -> None:
    words = ("bench_together.py", "--device=ipu", "--steps=2", "--set=instances=2")
    run_pytest(together.folder, together.environment, *words).assert_code(0)
    record = record_of(together)
    assert record["device"]["kind"] == "ipu"
    assert record["effective"]["instances"] == {"asked": 2, "ran": 2, "launcher": "poprun"}
    assert record["effective"]["rank"] == 0
    assert record["compile"] == "none"  # as in the case's own step
    # The configuration's replicas, and so its items, are those of the whole job.
    assert record["items_per_round"] == 8 * record["rounds"]["batches_per_step"]
    notes = notes_of(together)
    assert len(notes) == 2
    assert {note["pid"] for note in notes} == {
        entry["pid"] for entry in record["counters"]["instances"]
    }
    more = ("--batches-per-step=1", "--profile=reports")
    run_pytest(together.folder, together.environment, *words, *more).assert_code(0)
    (case,) = (together.folder / "reports").iterdir()
    for number, note in enumerate(notes_of(together), 1):
        folder = case / f"instance-{number}"
        assert folder.is_dir()
        options = json.loads(note["engine_options"])
        assert options == {
            "autoReport.all": "true",
            "autoReport.directory": str(folder),
            "debug.allowOutOfMemory": "true",
        }


def test_what_poprun_cannot_do_is_one_message(together: Project) -> None:
    words = ("bench_together.py", "--device=ipu", "--device-id=1")
    answer = run_pytest(together.folder, together.environment, *words).assert_code(1)
    assert "--device-id=1: poprun " in answer.text and "Traceback" not in answer.text


@pytest.fixture
def under_poprun(together: Project) -> Project:
    """A project whose runs are the first of two instances started by poprun."""
    job = {"instances": 2, "index": 0, "replicas": 2, "ipus_per_replica": 1}
    together.environment["DOUBLE_POPDIST"] = json.dumps(job)
    return together


ALONE = ("bench_together.py", "--device=ipu", "--steps=2", "--set=instances=1")


def test_several_instances_under_a_users_poprun_are_refused(
    under_poprun: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, environment = under_poprun.folder, under_poprun.environment
    for name, module in double.as_modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    refused(folder, environment, *ALONE).line("--set=instances=2")
    double.recorder.instances = 1
    # PopTorch raises for a number, and TensorFlow would run on other IPUs.
    refused(folder, environment, *ALONE, "--device-id=1").line("--device-id=1: poprun ")
    # A worker is a process.
    answer = run_pytest(folder, environment, *ALONE, "-n", "1").assert_code(4)
    assert "--set=instances=2" in answer.text and "Traceback" not in answer.text
    assert under_poprun.records() == {}


def test_one_instance_under_a_users_poprun_measures_and_several_may_collect(
    under_poprun: Project,
) -> None:
    words = ("bench_together.py", "--device=ipu", "--collect-only")
    run_pytest(under_poprun.folder, under_poprun.environment, *words).assert_code(0)
    under_poprun.environment["DOUBLE_POPDIST"] = json.dumps({"instances": 1})
    run_pytest(under_poprun.folder, under_poprun.environment, *ALONE).assert_code(0)
    assert record_of(under_poprun)["device"]["kind"] == "ipu"
