"""Several processes of one case under a real torchrun."""

from __future__ import annotations

import os
import sys

import pytest

from tests.machine.test_process import runs
from tests.support.harness import Project
from tests.support.instances import notes_of, record_of, run, with_instances

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(
        sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
        reason="needs Linux and two cores that this process may use",
    ),
]


@pytest.fixture
def together(project: Project) -> Project:
    """A project with the case of several processes."""
    pytest.importorskip("torch", reason="torchrun comes with PyTorch: make setup installs it")
    return with_instances(project, "torchrun")


def test_torchrun_starts_the_instances(together: Project) -> None:
    run(together, "--steps=2", "--batches-per-step=1").assert_code(0)
    facts = record_of(together)["effective"]["instances"]
    assert facts["launcher"] == "torchrun"
    notes = notes_of(together)
    assert [note["affinity"] for note in notes] == facts["cores"]
    assert [note["threads"] for note in notes] == [len(share) for share in facts["cores"]]


def test_an_instance_killed_under_torchrun_is_named(together: Project) -> None:
    answer = run(together, "--set=trouble=kill", "--batches-per-step=1").assert_code(1)
    line = answer.line("instance 2 of 2 (process ")
    assert "was killed by SIGKILL while the case ran, and the others were ended" in line
    assert not runs(int(line.split("(process ")[1].split(")")[0]))
