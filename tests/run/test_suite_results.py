"""Runs of the suite in a process: records, baselines, the gate, resuming."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import Project, holding

BETA = "bench_fake.py::bench_fake[beta-synthetic]"


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the baselines whole (all cases), main and six (both beta).

    In six it has more processes.
    """
    project = Project(tmp_path_factory.mktemp("measured"))
    project.run("--baseline-save=whole", "--processes=1").assert_code(0)
    project.run("-k", "beta", "--baseline-save=six", "--processes=6").assert_code(0)
    project.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    return project.folder / "baselines"


@pytest.mark.entry_point
def test_a_run_ends_in_a_table_and_leaves_a_journal(project: Project) -> None:
    outcome = project.run("-k", "bs8").assert_code(0)
    outcome.line("[1/2] bench_fake[alpha-bs8-synthetic] 800.0 items/s ±0.0% (")
    heading = outcome.line("case  ")
    assert heading.split() == ["case", "throughput", "±", "p50", "p99", "compile", "s"]
    assert outcome.line("  alpha-bs8-generated  ").split()[1:3] == ["800.0", "0.0%"]
    assert all(len(line) <= 80 for line in outcome.lines if line.startswith("  "))
    kinds = [line["type"] for line in project.journal()]
    assert kinds == ["run", "selected", *2 * ["begin", "case", "outcome"], "end"]


def test_the_record_holds_every_number_of_the_case(project: Project) -> None:
    words = ["--set=flops=1e6", "--set=peak=8e9", "--set=noise=0.1", "--budget=3"]
    project.run("-k", "beta-synthetic", *words).assert_code(0)
    (record,) = project.records().values()
    assert record["build_seconds"] == pytest.approx(1)
    assert record["compile_seconds"] == pytest.approx(2)
    assert record["compile"] == "fresh"
    assert record["first_step_seconds"] == pytest.approx(0.502, rel=0.01)
    assert record["throughput"]["unit"] == "items/s"
    assert record["throughput"]["median"] == pytest.approx(4000, rel=0.05)
    assert record["rounds"]["batches_per_step"] == pytest.approx(50, abs=5)
    assert record["rounds"]["stopped_by"] in ("budget", "precision")
    assert len(record["canary"]["seconds"]) == record["rounds"]["count"]
    assert record["latency"]["source"] == "single-batch calls"
    assert record["latency"]["p50_ms"] == pytest.approx(2, rel=0.1)
    assert record["compute"]["peak"] == 8e9
    assert record["compute"]["share"] == pytest.approx(0.5, rel=0.05)
    assert record["memory"]["host_peak_rss_bytes"] > 1e6
    assert record["device"]["fingerprint"] == "fake/fake device"
    assert record["conditions"] == {"allocator": "system"}
    assert record["data"] == {"mode": "synthetic", "values": "none"}
    assert record["versions"]["pytest"] == pytest.__version__


def test_an_impossible_number_fails_and_keeps_its_record_and_a_plausible_one_has_a_share(
    project: Project,
) -> None:
    words = ["-k", "beta-synthetic", "--set=flops=1e6", "--set=peak=1e9,8e9"]
    outcome = project.run(*words, "--baseline-save=main", "--processes=1").assert_code(1)
    assert re.search(r"implausible: 4e\+09 FLOP/s .* 4\.00 times", outcome.text)
    impossible, plausible = project.records().values()
    assert [impossible["implausible"], plausible["implausible"]] == [True, False]
    assert outcome.line("case  ").split()[-2:] == ["peak", "verdict"]
    assert outcome.line("1e06-peak1e09  ").split()[-2:] == ["-", "failed"]
    assert outcome.line("1e06-peak8e09  ").split()[-2:] == ["50%", "-"]
    (stored,) = project.baseline()["benchmarks"]
    assert stored["fullname"].endswith("-peak8e09]")


def test_a_baseline_compares_and_the_same_code_passes(stored: Project) -> None:
    (one, _) = stored.baseline("six")["benchmarks"]
    kept = one["extra_info"]["ipubench"]["processes"]
    assert [process["fresh"] for process in kept] == [False, *[True] * 5]
    assert all(process["seconds"] and process["canaries"] for process in kept)
    words = ["--baseline=./baselines/six.json", "--gate=2%", "--baseline-save=./here.json"]
    outcome = stored.run("-k", "beta or delta", *words, "--processes=1").assert_code(0)
    assert (stored.folder / "here.json").stat().st_mode & 0o044 == 0o044  # others may read it
    assert outcome.line("six.json").startswith(
        "against baselines/six.json (gate 2.0%): 1 new, 2 pass"
    )
    outcome.line("  new: bench_fake.py::bench_other[delta-synthetic]")
    assert "+0.0%" in outcome.line("  beta-synthetic")
    assert "fresh" not in [line["type"] for line in stored.journal()]
    fast = {"IPUBENCH_FAKE_SLOWDOWN": "0.8"}
    outcome = stored.run("-k", "beta", "--baseline=six", "--gate=5%", env=fast).assert_code(0)
    outcome.line(f"  improved: {BETA}")


@pytest.mark.entry_point
@pytest.mark.slow
def test_a_baseline_is_read_by_pytest_benchmark(
    stored: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = str(Path(sys.executable).with_name("pytest-benchmark"))
    answer = subprocess.run(
        [program, "compare", str(stored.folder / "baselines" / "main.json")],
        # Version 4.0 of that program cannot read a conftest under pytest 8.
        cwd=str(tmp_path_factory.mktemp("empty")),
        env=stored.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert b"bench_fake[beta-synthetic]" in answer.stdout


@pytest.mark.entry_point
def test_pytest_benchmarks_own_json_holds_the_records(project: Project) -> None:
    project.run("-k", "beta", "--benchmark-json=out.json").assert_code(0)
    loaded = json.loads((project.folder / "out.json").read_text())
    (one, _) = loaded["benchmarks"]
    assert one["extra_info"]["ipubench"]["name"] == "beta-synthetic"
    assert one["params"]["batch_size"] == 8
    assert one["stats"]["data"]


@pytest.mark.entry_point
def test_a_regression_fails_its_case_with_one_paragraph(stored: Project) -> None:
    """Its measurement does not become a baseline."""
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "1.1"}
    before = stored.baseline("main")
    words = ["-k", "beta", "--baseline=six", "--gate=5%", "--baseline-save=main", "--processes=1"]
    outcome = stored.run(*words, env=slow).assert_code(1)
    message = outcome.line("beta-synthetic has become slower: 4000 items/s before, 3636 items/s")
    assert re.search(r" -9\.1% \(.* 95% confidence, 3 processes now, 5 before\)", message)
    assert str(stored.journals()[-1].relative_to(stored.folder)) in message
    assert "Traceback" not in outcome.text
    outcome.line(f"  regressed: {BETA}")
    kinds = [line["type"] for line in stored.journal()]
    assert kinds.count("verdict") == 2
    outcome.line("2 cases regressed")
    assert stored.baseline("main") == before


def test_deselected_cases_are_counted(stored: Project) -> None:
    outcome = stored.run("-k", "beta", "--baseline=whole", "--gate=5%").assert_code(0)
    outcome.line("5 cases of the baseline")
    assert "missing" not in outcome.text
    path = stored.folder / "bench_fake.py"
    path.write_text(path.read_text().replace('config.trouble == "error"', "True"))
    outcome = stored.run("-k", "beta", "--baseline=whole", "--gate=5%", "-x").assert_code(1)
    outcome.line("5 cases of the baseline")
    outcome.line("1 case of the baseline was not run")
    assert "missing" not in outcome.text  # the failed case is in it


def test_a_case_that_no_longer_exists_is_named_and_fails_the_gate(stored: Project) -> None:
    source = (stored.folder / "bench_fake.py").read_text()
    (stored.folder / "bench_fake.py").write_text(source.replace('"beta"', '"renamed"'))
    outcome = stored.run("--baseline=whole", "--gate=5%").assert_code(1)
    outcome.line(f"  missing: {BETA}")
    outcome.line("  new: bench_fake.py::bench_fake[renamed-synthetic]")
    # By its old name, the cases keep their baseline.
    (stored.folder / "gate.yml").write_text(
        "default: {throughput: 5%}\n"
        "renamed:\n"
        f"  {BETA!r}: bench_fake.py::bench_fake[renamed-synthetic]\n"
        '  "bench_fake.py::bench_fake[beta-generated]": '
        '"bench_fake.py::bench_fake[renamed-generated]"\n'
    )
    outcome = stored.run("-k", "renamed", "--baseline=whole").assert_code(0)
    assert "missing" not in outcome.text and " new" not in outcome.text


def test_another_machine_or_configuration_is_incomparable_and_nothing_compared_is_exit_6(
    stored: Project,
) -> None:
    path = stored.folder / "bench_fake.py"
    path.write_text(path.read_text().replace("batch_seconds=0.002", "batch_seconds=0.003"))
    words = ["-k", "beta", "--baseline=main", "--gate=5%"]
    outcome = stored.run(*words, env={"IPUBENCH_FAKE_NAME": "other"}).assert_code(6)
    line = outcome.line(
        f"  incomparable: {BETA}: another machine (fake/fake device, now fake/other)"
    )
    assert "another configuration (batch_seconds 0.002 -> 0.003)" in outcome.text, line
    outcome.line("could decide no case")


def test_an_unwritable_baseline_keeps_the_results(project: Project) -> None:
    # The obstacle only shows at the end.
    (project.folder / "file" / ".main.json.lock").mkdir(parents=True)
    words = ["-k", "beta", "--baseline-save=./file/main.json", "--processes=1"]
    outcome = project.run(*words).assert_code(4)
    assert "cannot be written" in outcome.text
    assert len(project.records()) == 2


def test_a_case_that_fails_leaves_the_others(project: Project) -> None:
    outcome = project.run("-k", "delta or bs8", "--set=trouble=error")
    assert "broken on purpose" in outcome.assert_code(1).text
    assert "Traceback" not in outcome.text
    outcome = project.run("-k", "bs8", "--set=trouble=raise,none").assert_code(1)
    assert "an unforeseen error" in outcome.text
    assert [record["name"] for record in project.records().values()] == [
        "alpha-bs8-synthetic-troublenone",
        "alpha-bs8-generated-troublenone",
    ]


@pytest.mark.entry_point
def test_a_killed_run_keeps_what_it_measured_and_resume_finishes_the_rest(
    project: Project,
) -> None:
    words = ["-k", "beta or bs8"]
    source = (project.folder / "bench_fake.py").read_text()
    dying = source.replace('if config.trouble == "kill"', 'if "beta-generated" in str(meter.case)')
    (project.folder / "bench_fake.py").write_text(dying)
    assert project.run(*words).code == -signal.SIGKILL
    assert len(project.records()) == 3

    (project.folder / "bench_fake.py").write_text(source)
    outcome = project.run(*words, "--resume").assert_code(0)
    outcome.line("3 cases are done")
    assert "[1/1] bench_fake[beta-generated]" in outcome.text
    for name in ("alpha-bs8-synthetic", "alpha-bs8-generated", "beta-synthetic", "beta-generated"):
        outcome.line(f"  {name} ")
    assert len(project.journals()) == 1


def test_a_half_written_line_is_cut_off_and_a_damaged_one_is_lost_alone(ended: Project) -> None:
    journal = ended.journals()[0]
    lines = journal.read_text().splitlines(keepends=True)
    half = lines[6][: len(lines[6]) // 2]
    journal.write_text("".join([lines[0], "{broken\n", *lines[1:6], half]))
    ended.run("-k", "beta", "--resume").assert_code(0).line("1 case is done")
    text = journal.read_text().replace("{broken\n", "")
    assert [json.loads(line)["type"] for line in text.splitlines()] == [
        "run", "selected", "begin", "case", "outcome", "begin",
        "resume", "selected", "begin", "case", "outcome", "end",
    ]  # fmt: skip


def test_a_held_device_ends_the_run_with_its_holder(project: Project) -> None:
    with holding("fake-0", project.environment) as holder:
        outcome = project.run("-k", "beta", "--device-timeout=0.5").assert_code(4)
        outcome.line(f"waiting for fake-0, held by process {holder}")
        assert re.search(rf"fake-0 is still .* {holder}\b", outcome.text)
        assert "Traceback" not in outcome.text
        project.run("-k", "beta", "--device-id=1").assert_code(0)


@pytest.mark.entry_point
def test_benchmark_disable_runs_each_case_once_without_measuring(project: Project) -> None:
    outcome = project.run("-k", "beta", "--benchmark-disable").assert_code(0)
    outcome.line("[1/2] bench_fake[beta-synthetic] ran, not measured")
    assert project.records() == {}
    project.refused("-k", "beta", "--benchmark-disable", "--baseline-save=main")
    project.refused("-k", "beta", "--benchmark-skip", "--against=git:HEAD")


@pytest.mark.entry_point
def test_a_run_interrupted_by_ctrl_c_keeps_what_it_measured_and_the_baseline(
    stored: Project,
) -> None:
    source = (stored.folder / "bench_fake.py").read_text()
    broken = source.replace(
        'if config.trouble == "error":\n        raise CaseError(',
        'if "beta-generated" in str(meter.case):\n        raise KeyboardInterrupt(',
    )
    (stored.folder / "bench_fake.py").write_text(broken)
    before = stored.baseline()
    outcome = stored.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(2)
    assert len(stored.records()) == 1
    outcome.line("  beta-synthetic ")
    outcome.line("no baseline was written: the run was interrupted")
    outcome.line("interrupted with 1 of 2")
    assert stored.baseline() == before


def test_a_run_that_stopped_at_its_first_failure_does_not_become_the_baseline(
    project: Project,
) -> None:
    words = ["-k", "beta", "-x", "--set=trouble=error", "--baseline-save=main", "--history"]
    outcome = project.run(*words).assert_code(1)
    outcome.line("no baseline was written: the run ended before its last case")
    outcome.line("nothing was kept")
    assert not (project.folder / "baselines").exists()


def test_results_that_can_no_longer_be_written_are_still_shown(project: Project) -> None:
    source = (project.folder / "bench_fake.py").read_text()
    removing = source.replace(
        "    feed = ArrayFeed(config.data, ())\n    step",
        "    __import__('shutil').rmtree('results', ignore_errors=True)\n"
        "    open('baselines', 'w').close()\n"
        "    feed = ArrayFeed(config.data, ())\n    step",
    )
    assert removing != source
    (project.folder / "bench_fake.py").write_text(removing)
    outcome = project.run("-k", "beta", "--history").assert_code(1)
    outcome.line("can no longer be written")
    outcome.line("baselines")
    assert "results are in" not in outcome.text
    outcome.line("  beta-generated ")
    assert "INTERNALERROR" not in outcome.text


@pytest.mark.parametrize(
    ("how", "code", "line"),
    [
        ("return", 1, "  missing: bench_fake.py::bench_fake[beta-generated]"),
        (
            '__import__("pytest").skip("not today")',
            0,
            "  incomparable: bench_fake.py::bench_fake[beta-generated]: skipped here",
        ),
    ],
)
def test_a_case_that_passed_without_being_measured_is_missing_and_a_skipped_one_is_not(
    stored: Project, how: str, code: int, line: str
) -> None:
    source = (stored.folder / "bench_fake.py").read_text()
    skipping = source.replace(
        'if config.trouble == "error":',
        f'if config.data == "generated":\n        {how}\n    if config.trouble == "error":',
    )
    (stored.folder / "bench_fake.py").write_text(skipping)
    outcome = stored.run("-k", "beta", "--baseline=main", "--gate=5%").assert_code(code)
    outcome.line(line)
    assert ("missing" in outcome.text) == bool(code)


def test_gate_options_of_the_ini_file_do_not_reach_fresh_processes(stored: Project) -> None:
    ini = stored.folder / "pytest.ini"
    words = "--strict-markers --baseline=main --gate=5%"
    ini.write_text(ini.read_text().replace("--strict-markers", words))
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "1.2"}
    stored.run("-k", "beta-synthetic", env=slow).assert_code(1)
    fresh = [line for line in stored.journal() if line["type"] == "fresh"]
    assert len(fresh) == 3  # the least number that can decide
    assert all(line["benchmark"]["fullname"] == BETA for line in fresh)


@pytest.mark.entry_point
def test_pytest_benchmark_compares_seconds_per_batch(project: Project) -> None:
    project.run("-k", "beta-synthetic", "--benchmark-save=one").assert_code(0)
    words = ["--benchmark-compare", "--benchmark-compare-fail=mean:5%"]
    slow = {"IPUBENCH_FAKE_SLOWDOWN": "3"}
    outcome = project.run("-k", "beta-synthetic", *words, env=slow)
    assert outcome.code != 0
    assert "Performance has regressed" in outcome.text


def test_an_unwritable_baseline_is_refused_before_any_measurement(
    project: Project,
) -> None:
    (project.folder / "file").touch()
    outcome = project.refused("-k", "beta", "--baseline-save=file/main")
    assert re.search("file/main .* written", outcome.text)
    (project.folder / "file").unlink()
    assert not (project.folder / "results").exists()
    project.listed("-k", "beta", "--collect-only", "--baseline-save=new/main").assert_code(0)
    assert not (project.folder / "new").exists()
