"""Several hosts, here folders, measure one run with the same result as without them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from typing import Any, Dict, List

import pytest

from ipubench.plugins.baseline.history import FOLDER
from ipubench.plugins.baseline.store import load_all
from ipubench.plugins.results.lines import lines_of
from ipubench.plugins.results.places import place_of
from ipubench.plugins.results.run_results import RunResults
from tests.support.fleet import as_host, as_hosts, hosts_of
from tests.support.harness import (
    QUIETLY,
    Project,
    SuiteServer,
    run_pytest,
    start_pytest,
)
from tests.support.own_project import git

pytest.importorskip("execnet", reason="execnet is not installed: pip install pytest-xdist")

BETA = "bench_fake.py::bench_fake[beta-synthetic]"
ONCE = """if "beta-generated" in str(meter.case) and not os.path.exists({mark!r}):
        open({mark!r}, "w").close()
        {what}
    if config.trouble == "kill\""""


def once(project: Project, what: str) -> None:
    """Have the first process that measures beta-generated do something first."""
    path = project.folder / "bench_fake.py"
    new = ONCE.format(mark=str(project.folder / "done-once"), what=what)
    path.write_text(path.read_text().replace('if config.trouble == "kill"', new))


def figures(benchmarks: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the values that two runs have in common, by node id."""
    found = {}
    for one in benchmarks:
        record = one["extra_info"]["ipubench"]
        found[one["fullname"]] = (
            pytest.approx(record["throughput"]["median"]),
            record["config_hash"],
            record["device"],
            record["conditions"],
            one["params"],
            one["name"],
        )
    return found


def outcomes(project: Project) -> Dict[str, str]:
    """Return case -> outcome for the latest run."""
    return RunResults.of(lines_of(project.journal())).outcomes


def test_a_fleet_gives_the_table_the_journal_and_the_baseline_of_a_serial_run(
    project: Project,
) -> None:
    words = ("--set=noise=0.1", "--processes=1")
    serial = project.run(*words, "--baseline-save=serial").assert_code(0)
    kinds = sorted(line["type"] for line in project.journal())

    hosts = as_hosts(project, a="", b="", c="")
    outcome = project.run(*words, "--baseline-save=fleet", *hosts).assert_code(0)
    assert outcome.table == serial.table
    assert sorted(line["type"] for line in project.journal()) == kinds
    before, now = (project.baseline(name)["benchmarks"] for name in ("serial", "fleet"))
    assert figures(now) == figures(before)
    outcome.line("fleet of 3 workers:")
    outcome.line("  a: fake device (")
    outcome.line("collected 11 items / 5 deselected / 6 selected")
    outcome.line("[6/6] bench_")

    assert {one["extra_info"]["ipubench"]["host"] for one in now} == set("abc")


def test_a_host_measures_cases_of_several_files_in_any_order(project: Project) -> None:
    # One host has a device of its own, so a session's fixtures stay from case to case.
    hosts = as_hosts(project, a="")
    # Another case failed there in its own runs, which --lf must not use here.
    cache = project.folder / "hosts" / "a" / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps({BETA.replace(".", "_too."): True}))
    for folder in (project.folder, project.folder / "hosts" / "a"):
        for name in ("bench_fake_again.py", "bench_fake_too.py"):
            shutil.copy(folder / "bench_fake.py", folder / name)
    words = ("bench_fake_again.py", "bench_fake_too.py", "-k", "beta or delta")
    serial = project.run(*words).assert_code(0)
    again = project.run(*words, *hosts, "-p", "cacheprovider", "--lf").assert_code(0)
    assert again.table == serial.table
    assert [line["type"] for line in project.journal()].count("case") == 9


def test_a_case_with_a_baseline_goes_to_a_host_with_its_fingerprint(project: Project) -> None:
    only = {"IPUBENCH_FAKE_NAME": "old"}
    project.run("-k", "beta", "--baseline-save=main", "--processes=2", env=only).assert_code(0)
    hosts = as_hosts(project, a="env:IPUBENCH_FAKE_NAME=new", b="env:IPUBENCH_FAKE_NAME=old")
    outcome = project.run("--baseline=main", "--gate=10%", "--history", *hosts).assert_code(0)
    found = hosts_of(project)
    assert {host for name, host in found.items() if name.startswith("beta")} == {"b"}
    # Each machine's results form a run in its own history.
    kept = [load_all(path) for path in (project.folder / FOLDER).glob("*/*.json")]
    assert [len({place_of(one)[1] for one in run}) for run in kept] == [1, 1]
    assert sum(map(len, kept)) == len(found)
    assert set(found.values()) == {"a", "b"}
    outcome.line("(gate 10.0%): 5 new, 2 pass")


def test_a_host_that_dies_loses_only_its_case_which_another_measures(project: Project) -> None:
    once(project, "os.kill(os.getpid(), signal.SIGKILL)")
    # The other one has its result when it dies as well.
    mark = str(project.folder / "died-after")
    project.add_to_conftest(
        "def pytest_runtest_teardown(item):\n"
        "    import os, signal\n"
        f"    if 'beta-generated' in item.name and not os.path.exists({mark!r}):\n"
        f"        open({mark!r}, 'w').close()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    hosts = as_hosts(project, a="", b="")
    outcome = project.run(*hosts).assert_code(0)
    outcome.line("[beta-generated]: ")
    assert " was lost (" in outcome.text
    assert os.path.exists(mark) and len(project.records()) == 7
    assert len(outcomes(project)) == 7 and set(outcomes(project).values()) == {"passed"}
    outcome.line("[7/7] ")


def test_a_host_that_does_not_return_is_named_and_the_others_continue(project: Project) -> None:
    hosts = as_hosts(project, a="", b="")
    gone = project.folder / "hosts" / "a"
    once_there = f"import shutil; shutil.rmtree({str(gone)!r}); os._exit(1)"
    mark = str(project.folder / "done-once")
    text = (gone / "bench_fake.py").read_text()
    new = ONCE.format(mark=mark, what=once_there).replace(
        '"beta-generated" in str(meter.case)', "1"
    )
    (gone / "bench_fake.py").write_text(text.replace('if config.trouble == "kill"', new))
    outcome = project.run(*hosts).assert_code(0)
    assert ": a was lost (" in outcome.text
    assert set(hosts_of(project).values()) == {"b"}
    assert len(project.records()) == 7


def test_a_case_without_a_suitable_host_fails(project: Project) -> None:
    hosts = as_hosts(project, a="", b="")
    path = project.folder / "hosts" / "a" / "bench_fake.py"
    other = project.folder / "hosts" / "b" / "bench_fake.py"
    for one in (path, other):
        one.write_text(one.read_text().replace('"delta"', '"epsilon"'))
    outcome = project.run(*hosts).assert_code(1)
    outcome.line("no host of the fleet")
    assert len(project.records()) == 6


def test_results_survive_ctrl_c_and_resume_continues(project: Project) -> None:
    once(
        project,
        "os.kill(int(os.environ['CONTROLLER']), signal.SIGINT); signal.pause()",
    )
    hosts = as_hosts(project, a="", b="")
    words = [*QUIETLY, "bench_fake.py", "--device=fake", *hosts]
    script = (
        "import os, sys, pytest; os.environ['CONTROLLER'] = str(os.getpid()); "
        f"sys.exit(pytest.main({words!r}))"
    )
    first = SuiteServer.run(project.folder, project.environment, "-c", script).assert_code(2)
    # Ctrl-C may come between a result and the end of its test: then that case is measured again.
    done = list(outcomes(project).values()).count("passed")
    assert 1 <= done <= len(project.records()) < 7
    assert "--resume" in first.text
    project.run(*hosts, "--resume").assert_code(0).line(f": {done} case")
    assert len(outcomes(project)) == 7
    assert len(project.journals()) == 1


def test_workers_end_with_a_killed_controller(project: Project) -> None:
    pids = project.folder / "pids"
    once(
        project,
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); signal.pause()",
    )
    words = ("bench_fake.py", "--device=fake", *as_hosts(project, a="", b=""))
    run = start_pytest(project.folder, project.environment, *words)
    until = time.monotonic() + 60
    while not pids.exists() or not pids.read_text().endswith("\n"):
        assert time.monotonic() < until and run.is_running()
        time.sleep(0.05)
    worker = int(pids.read_text())
    run.send_signal(signal.SIGKILL)
    run.wait()
    while os.path.exists(f"/proc/{worker}") and not _zombie(worker):
        assert time.monotonic() < until
        time.sleep(0.05)


def _zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def test_mistakes_end_in_one_message(project: Project) -> None:
    for words, message in (
        ("ssh=a//id=a", "a host is ssh=ADDRESS//chdir=FOLDER"),
        ("ssh=nobody.invalid//chdir=/srv", "nobody.invalid: its Python does not answer"),
        ("popen//python=/bin/false//id=a", "a: its Python does not answer"),
        ("popen//id=a --against=git:HEAD", "--against with several hosts: "),
        ("popen//id=a --baseline=none", "there is no baseline"),
    ):
        project.refused("--tx", *words.split()).line(message)


def test_a_host_needs_a_device_for_each_of_its_workers(project: Project) -> None:
    project.refused("--device=cpu", "--tx", "2*popen//id=a").line("(1 of cpu")


def test_a_folder_without_a_checkout_is_named(project: Project, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("empty")
    project.refused("--tx", f"popen//id=a//chdir={folder}").line("a: ")


def test_a_plugin_that_fails_on_a_host_is_named_with_its_error(project: Project) -> None:
    project.add_to_conftest(
        "def pytest_configure(config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        config.workerinput['what no host has']\n"
    )
    project.refused(*as_hosts(project, a="")).line("a: KeyError: 'what no host has'")


def test_a_host_at_another_revision_is_refused(project: Project) -> None:
    for folder in (project.folder, as_host(project, "a")):
        git(folder, "init", "-q")
        git(folder, "add", "conftest.py", "pytest.ini", "bench_fake.py")
        git(folder, "commit", "-qm", str(folder))
    project.refused(*as_hosts(project, a="")).line("and this project at ")


def test_ordinary_tests_run_on_hosts_and_are_not_cases(project: Project) -> None:
    path = project.folder / "bench_fake.py"
    deadly = "import pytest\n\n@pytest.fixture\ndef deadly():\n    os._exit(1)\n"
    tests = "def test_deadly(deadly):\n    pass\n\ndef test_plain():\n    pass\n"
    path.write_text(f"{path.read_text()}\n\n{deadly}\n{tests}")
    outcome = project.run(*as_hosts(project, a="", b=""), "-o", "python_functions=bench_* test_*")
    outcome.assert_code(1).line("1 failed, 8 passed")
    # It loses two processes, not all hosts, although it ends them before it is called.
    outcome.line("' crashed while running 'bench_fake.py::test_deadly': ")
    assert len([how for how in outcomes(project).values() if how == "passed"]) == 7
    assert "test_plain" not in {line.get("case") for line in project.journal()}


def test_a_host_that_cannot_import_a_file_leaves_its_cases_to_others(
    project: Project,
) -> None:
    hosts = as_hosts(project, a="", b="")
    broken = project.folder / "hosts" / "b" / "bench_fake.py"
    broken.write_text(broken.read_text() + "\nimport nothing_of_that_name\n")
    outcome = project.run(*hosts).assert_code(1)
    outcome.line("No module named 'nothing_of_that_name'")
    assert list(hosts_of(project).values()) == 7 * ["a"]


def test_two_names_of_one_device_alternate(project: Project) -> None:
    leases = f"env:IPUBENCH_LEASE_DIR={project.folder}/leases"
    outcome = project.run(*as_hosts(project, a=leases, b=leases), "--device-timeout=5")
    outcome.assert_code(0)
    assert set(hosts_of(project).values()) == {"a", "b"}


def test_if_its_machine_is_lost_a_stored_case_is_measured_on_another(project: Project) -> None:
    only = {"IPUBENCH_FAKE_NAME": "old"}
    project.run("-k", "beta", "--baseline-save=main", "--processes=1", env=only).assert_code(0)
    hosts = as_hosts(project, a="env:IPUBENCH_FAKE_NAME=new", b="env:IPUBENCH_FAKE_NAME=old")
    path = project.folder / "hosts" / "b" / "bench_fake.py"
    gone = f"__import__('shutil').rmtree({str(path.parent)!r}); os._exit(1)"
    path.write_text(path.read_text().replace('if config.trouble == "kill":', f"{gone}\n    if 1:"))
    outcome = project.run("-k", "beta", "--baseline=main", *hosts).assert_code(0)
    outcome.line("(no gate): 2 incomparable")
    assert set(hosts_of(project).values()) == {"a"}


def test_a_run_may_start_outside_its_project(project: Project) -> None:
    words = [f"{project.folder.name}/bench_fake.py", "--device=fake", "--tx", "popen//id=a"]
    words += [f"--rootdir={project.folder}"]
    answer = run_pytest(project.folder.parent, project.environment, *words).assert_code(0)
    answer.line("7 passed")


def test_listings_contact_no_host(project: Project) -> None:
    nobody = "--tx=ssh=nobody.invalid//chdir=/srv"
    outcome = project.listed(nobody, "--collect-only", "-q").assert_code(0)
    assert BETA in outcome.text
    project.listed(nobody, "--markers").assert_code(0).line("@pytest.mark.quick")


def test_several_devices_of_a_host_are_measured_in_parallel(project: Project) -> None:
    words = ("--tx", "2*popen//id=a//env:IPUBENCH_FAKE_COUNT=2")
    outcome = project.run(*words).assert_code(0)
    outcome.line("fleet of 2 workers:")
    assert set(hosts_of(project).values()) == {"a.0", "a.1"}
    found = {
        record["host"]: record["device"]["details"]["device_id"]
        for record in project.records().values()
    }
    assert found == {"a.0": 0, "a.1": 1}
