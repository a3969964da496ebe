"""Several processes of one case, run by the whole suite on this CPU."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import List

import pytest

from ipubench.fixtures.runtimes.model_cache import ModelCache
from tests.machine.test_process import runs, wait_until_gone
from tests.support.harness import Project, Started, counting_rounds, listed, start_pytest
from tests.support.instances import WORDS, notes_of, record_of, run, with_instances

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores that this process may use",
)


@pytest.fixture
def together(project: Project) -> Project:
    """A project with the case of several processes."""
    return with_instances(project)


# Two rounds of one batch each.
BRIEF = ("--steps=2", "--batches-per-step=1")


def started(folder: Path) -> List[int]:
    """Return the processes that the launcher started, from its file in the case's folder."""
    log = (folder / "launcher.log").read_text()
    return [int(word) for word in log.splitlines()[0].split()[1:]]


def only_folder(project: Project) -> Path:
    """Return the folder of the only case, whose instances did not end well."""
    (folder,) = project.folder.glob("results/instances/*")
    return folder


@pytest.mark.entry_point
def test_all_instances_run_together_and_all_of_their_items_count(together: Project) -> None:
    models = together.folder / "models"
    kept = ModelCache(str(models), {}, ".txt")
    kept.store(lambda path: path.write_text("compiled"))
    kept.note(100.0)
    words = ["--set=batch_size=3", "--batches-per-step=50", f"--set=model_cache_path={models}"]
    run(together, "--steps=4", *words).assert_code(0)
    record = record_of(together)
    assert record["compile"] == "cached"  # both loaded it from the folder
    assert record["compile_saved_seconds"] == 100.0 - record["compile_seconds"]
    batches = record["rounds"]["batches_per_step"]
    assert record["items_per_round"] == 2 * 3 * batches
    effective = record["effective"]
    assert effective["rank"] == 0  # the engine is the first instance's
    facts = effective["instances"]
    assert (facts["asked"], facts["ran"], facts["launcher"]) == (2, 2, "processes")

    one, other = notes_of(together)
    assert [one["affinity"], other["affinity"]] == facts["cores"]
    assert not set(one["affinity"]) & set(other["affinity"])
    assert one["threads"] == other["threads"] == len(one["affinity"])
    # The barrier: no call begins before both processes have ended the previous one.
    assert len(one["calls"]) == len(other["calls"]) >= 4
    assert 0 < one["before_rounds"] == other["before_rounds"] < len(one["calls"])
    pairs = list(zip(one["calls"], other["calls"]))
    for before, after in zip(pairs, pairs[1:]):
        assert min(start for start, _ in after) >= max(end for _, end in before)
    # They run in parallel: a call begins in both before it ends in either.
    assert any(max(a[0], b[0]) < min(a[1], b[1]) for a, b in pairs)

    counted = record["counters"]["instances"]
    assert [entry["pid"] for entry in counted] == [one["pid"], other["pid"]]
    assert all(entry["rate"] > 0 and entry["first_rate"] > 0 for entry in counted)
    # The device's values of both, for rounds that count and not for the warm-up.
    assert record["latency"]["source"].startswith("the hash, ")
    assert record["latency"]["samples"] == 2 * counting_rounds(record)
    assert record["compute"]["flops_per_item"] == 2.0
    # 12 bytes for each of two instances, for 2 x 3 items.
    assert record["compute"]["weight_bytes_per_item"] == 4.0
    # Each records its memory, which includes Python, pytest and NumPy.
    assert record["memory"]["host_peak_rss_bytes"] > 2 * 30e6
    # An instance writes no record, and its log was not needed.
    assert not (together.folder / "results" / "instances").exists()
    assert len(together.journals()) == 1
    assert [line["type"] for line in together.journal()] == [
        "run", "selected", "begin", "case", "outcome", "end",
    ]  # fmt: skip


@pytest.mark.slow
def test_fewer_cores_than_instances_are_reported_and_recorded(together: Project) -> None:
    asked = len(os.sched_getaffinity(0)) + 7
    answer = run(together, *BRIEF, f"--set=instances={asked}").assert_code(0)
    facts = record_of(together)["effective"]["instances"]
    assert facts["asked"] == asked and facts["ran"] == len(facts["cores"]) < asked - 6
    assert record_of(together)["items_per_round"] % facts["ran"] == 0
    assert f"{facts['ran']} of {asked} instances ran" in answer.text


def test_a_case_of_one_process_needs_no_launcher(together: Project) -> None:
    (together.folder / "bin" / "mpirun").unlink()
    together.environment.update(IPUBENCH_LAUNCHER="mpirun", PATH=str(together.folder / "bin"))
    run(together, *BRIEF, "--set=instances=1").assert_code(0)
    assert "instances" not in record_of(together)["effective"]
    answer = run(together, *BRIEF).assert_code(1)
    assert "IPUBENCH_LAUNCHER=mpirun" in answer.text and "Traceback" not in answer.text


@pytest.mark.slow
def test_a_failed_instance_is_named_and_the_others_end(together: Project) -> None:
    said = {
        "error": ": the hash is broken on purpose; mend it",
        "raise": ": RuntimeError: an unforeseen error",
        "late_error": ": the hash broke in mid-run",
    }
    words = (f"--set=trouble={','.join(said)}", "--batches-per-step=1")
    answer = run(together, *words).assert_code(1)
    assert "3 failed" in answer.text
    for trouble, message in said.items():
        line = answer.line(f"{message}. ")
        (folder,) = together.folder.glob(f"results/instances/*-trouble{trouble}*")
        assert "instance 2 of 2 (process " in line and str(folder / "instance-2.log") in line
        assert not any(map(runs, started(folder)))
        if trouble == "raise":
            assert "bench_together.py" in (folder / "instance-2.log").read_text(), "a traceback"
    assert "    E           RuntimeError: " in answer.text


@pytest.mark.slow
def test_a_killed_instance_is_named_and_the_others_end(together: Project) -> None:
    words = (*WORDS, "--set=trouble=kill", "--batches-per-step=1")
    # The launcher finds processes by their numbers, so it must have started each.
    answer = start_pytest(together.folder, together.environment, *words).wait().assert_code(1)
    folder = only_folder(together)
    pids = started(folder)
    line = answer.line(f"instance 2 of 2 (process {pids[1]}) was killed by SIGKILL ")
    assert str(folder / "instance-2.log") in line
    assert not any(map(runs, pids))


def waiting_run(project: Project) -> Started:
    """Start a long run and return when all instances have made some calls."""
    process = start_pytest(project.folder, project.environment, *WORDS, "--steps=100000")
    deadline = time.monotonic() + 60
    while len(list(project.folder.glob("results/instances/*/instance-*.log"))) < 2:
        assert process.is_running() and time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 2)], ids=["kill", "ctrl-c"]
)
def test_nothing_is_left_when_the_run_is_terminated(
    together: Project, how: signal.Signals, code: int
) -> None:
    process = waiting_run(together)
    pids = started(only_folder(together))
    assert len(pids) == 2 and all(map(runs, pids))
    process.send_signal(how)
    process.wait().assert_code(code)
    wait_until_gone(pids)


def test_a_failing_launcher_shows_its_output(together: Project) -> None:
    together.environment["IPUBENCH_LAUNCHER"] = "mpirun"
    (together.folder / "bin" / "mpirun").write_text("#!/bin/sh\necho no slots; exit 9\n")
    answer = run(together, "--set=trouble=error", "--set=batch_size=1").assert_code(1)
    assert "not even begun" in answer.text, "nothing is launched"
    assert not (together.folder / "results" / "instances").exists()
    answer = run(together).assert_code(1)
    assert re.search("mpirun .* 9 before", answer.text) and "    no slots" in answer.text


def test_the_option_for_instances_cannot_be_used_by_hand(together: Project) -> None:
    together.refused("--ipubench-instance=127.0.0.1:1").line("--ipubench-instance is for ")
    help_text = listed(together.folder, together.environment, "--help-ipubench").text
    assert "--dry-run" in help_text and "instance ADDRESS" not in help_text
