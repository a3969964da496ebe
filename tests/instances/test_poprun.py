"""An IPU case of several instances, from the command line to the record.

poprun and PopDist are stand-ins, and the case's work needs no IPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Tuple

import pytest

from tests.support.harness import Project, run_pytest
from tests.support.instances import notes_of, record_of, with_instances

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: run it there")

# What an instance of the stand-in imports as popdist.
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
    """A project where the SDK seems to be installed."""
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
    assert record["compile"] == "none", "as the case's own step says"
    # The configuration's replicas are those of the whole job, so its items are, too.
    assert record["items_per_round"] == 8 * record["rounds"]["batches_per_step"]
    assert len(notes_of(together)) == 2
    assert {note["pid"] for note in notes_of(together)} == {
        entry["pid"] for entry in record["counters"]["instances"]
    }


def test_each_instance_reports_into_a_folder_of_its_own(together: Project) -> None:
    brief = ("--steps=2", "--batches-per-step=1")
    words = ("bench_together.py", "--device=ipu", *brief, "--set=instances=2", "--profile=reports")
    run_pytest(together.folder, together.environment, *words).assert_code(0)
    (case,) = (together.folder / "reports").iterdir()
    options = [json.loads(note["engine_options"]) for note in notes_of(together)]
    assert options == [
        {"autoReport.all": "true", "autoReport.directory": str(case / f"instance-{number}")}
        for number in (1, 2)
    ]
    assert all(Path(one["autoReport.directory"]).is_dir() for one in options)


def test_an_ipu_cannot_be_chosen_for_several_instances(together: Project) -> None:
    words = ("bench_together.py", "--device=ipu", "--device-id=1")
    answer = run_pytest(together.folder, together.environment, *words).assert_code(1)
    assert "--device-id: poprun chooses the IPUs of several instances" in answer.text


def test_without_poprun_the_message_names_the_sdk(together: Project) -> None:
    (together.folder / "bin" / "poprun").unlink()
    words = ("bench_together.py", "--device=ipu")
    answer = run_pytest(together.folder, together.environment, *words).assert_code(1)
    assert "poprun is not on PATH: it comes with the Poplar SDK" in answer.text
    assert "Traceback" not in answer.text


@pytest.fixture
def under_poprun(together: Project) -> Project:
    """A project whose runs are the first of two instances that poprun has started."""
    job = {"instances": 2, "index": 0, "replicas": 2, "ipus_per_replica": 1}
    together.environment["DOUBLE_POPDIST"] = json.dumps(job)
    return together


ALONE = ("bench_together.py", "--device=ipu", "--steps=2", "--set=instances=1")


@pytest.mark.parametrize("more", [(), ("-n", "1")])
def test_several_instances_of_a_users_poprun_are_refused(
    under_poprun: Project, more: Tuple[str, ...]
) -> None:
    """Each would measure for itself, and wait for the others in the middle of a call."""
    answer = run_pytest(under_poprun.folder, under_poprun.environment, *ALONE, *more).assert_code(4)
    assert "poprun has started 2 instances of this run, which know nothing of each" in answer.text
    assert "leave out poprun and give --set=instances=2, with which the suite" in answer.text
    assert "Traceback" not in answer.text
    assert not under_poprun.journals() or under_poprun.records() == {}


def test_one_instance_of_a_users_poprun_measures(under_poprun: Project) -> None:
    under_poprun.environment["DOUBLE_POPDIST"] = json.dumps({"instances": 1})
    run_pytest(under_poprun.folder, under_poprun.environment, *ALONE).assert_code(0)
    assert record_of(under_poprun)["device"]["kind"] == "ipu"


def test_other_sessions_of_a_users_poprun_are_let_through(under_poprun: Project) -> None:
    words = ("bench_together.py", "--device=ipu", "--collect-only")
    run_pytest(under_poprun.folder, under_poprun.environment, *words).assert_code(0)
