"""Runs of the suite on a benchmarks.yml: selection, failures, recording, gate."""

from __future__ import annotations

import csv
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest

from ipubench.plugins.baseline.entries import gone
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.metrics import Metric, MetricError
from ipubench.plugins.benchmarks_yml.plugin import pytest_sessionfinish
from ipubench.plugins.benchmarks_yml.reader import read_entries
from ipubench.plugins.benchmarks_yml.results import csv_text
from ipubench.plugins.record.files import JsonLinesFile
from ipubench.plugins.run.results import Run, SessionResults, run_key
from tests.support.harness import ROOT, Outcome, Project, run_pytest, start_pytest

NEEDED = "pytest_benchmark.plugin,ipubench.plugins.command_line.options"
NEEDED += ",ipubench.plugins.command_line.refusals"
PROGRAM = """\
import os, subprocess, sys, time

words = sys.argv[1:]
if "--child" in words:
    # A process group of the command's own, which ignores being asked to end.
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    print(f"child {child.pid}", file=sys.stderr, flush=True)
if "--hang" in words:
    time.sleep(600)
if "--fail" in words:
    print("this is the reason", file=sys.stderr)
    sys.exit(3)
if "--word" in words:
    print("throughput: many samples/sec")
print("where", os.getcwd(), os.environ.get("DATASETS_DIR"), os.environ.get("COLOUR"), *words)
rate = float(os.environ.get("RATE", "100"))
for value in (rate / 2, rate, rate * 1.01, rate * 0.99):
    print(f"throughput: {value} samples/sec")
    print(f"latency avg: {1000 / value} ms", file=sys.stderr)
"""
SPEC = r"""
common_options: &common
  data:
    throughput: {regexp: 'throughput: *(.*?) samples\/sec', skip: 1}
    latency: {regexp: 'latency avg: *(.*?) ms'}
  output: [[samples/sec, throughput], [size, size], [both, both]]
  timeout: 60

net_infer_gen:
  <<: *common
  cmd: mpirun --np 1 {program} --size {size} $COLOUR
  env: {COLOUR: blue}
  parameters: {size: "1,8"}
  derived: {both: {expr: throughput * size}}
  pre_run_commands: [make]
net_train_real:
  <<: *common
  cmd: python3 prog.py --data $DATASETS_DIR/images
net_train_conv_gen: {<<: *common, cmd: python3 prog.py}
notebook_gen: {notebook: x.ipynb}
hangs_gen: {<<: *common, cmd: python3 prog.py --child --hang, timeout: 1}
fails_gen: {<<: *common, cmd: python3 prog.py --fail}
words_gen: {<<: *common, cmd: python3 prog.py --word}
few_gen: {data: {throughput: {regexp: 'throughput: (.*) s', skip: 4}}, cmd: python3 prog.py}
absent_gen: {cmd: no-such-program --now}
unset_gen: {cmd: python3 prog.py $NOBODY_SETS_THIS}
needs_gen: {cmd: python3 prog.py, requirements_file: needs.txt}
plain_gen: {cmd: python3 prog.py}
same_gen: {cmd: python3 prog.py, parameters: {a: 1, b: 1}}
same_gen_a_1: {cmd: python3 prog.py, parameters: {b: 5}}
lost_gen: {cmd: python3 prog.py, location: LONG}
"""
LONG = 300 * "x"


class Specs:
    """A project with a file of commands below it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "vision"
        self.folder.mkdir()
        (self.folder / "prog.py").write_text(PROGRAM, encoding="utf-8")
        (self.folder / "benchmarks.yml").write_text(
            SPEC.replace("{program}", "python3 prog.py").replace("LONG", LONG), encoding="utf-8"
        )
        (self.folder / "needs.txt").write_text("-r x.txt\npytest>=1\nno-such-thing>=2  # why\n")
        # mpirun, as far as these tests need it.
        tool = project.folder / "bin" / "mpirun"
        tool.parent.mkdir()
        tool.write_text('#!/bin/sh\nshift 2\nexec "$@"\n', encoding="utf-8")
        tool.chmod(0o755)
        self.environment = {
            **project.environment,
            "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def run(self, *words: str, file: str = "vision/benchmarks.yml", **environ: str) -> Outcome:
        # Other packages' plugins take longer to import than the commands run, in each process.
        lean = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": NEEDED}
        alone = {} if "-n" in words else lean
        environment = {**self.environment, **alone, **environ}
        return run_pytest(self.project.folder, environment, file, "--device=fake", *words)


@pytest.fixture
def specs(project: Project) -> Iterator[Specs]:
    yield Specs(project)


def collected(outcome: Outcome) -> List[str]:
    return [line for line in outcome.lines if re.fullmatch(r"\S+::\S+", line)]


def test_entries_are_cases_whatever_functions_the_project_collects(specs: Specs) -> None:
    words = ("--collect-only", "-q", "-k", "plain", "-o", "python_functions=test_*")
    outcome = specs.run(*words).assert_code(0)
    assert collected(outcome) == ["vision/benchmarks.yml::bench_spec[plain_gen]"]


def test_entries_are_cases_whose_identifiers_begin_with_the_file(specs: Specs) -> None:
    outcome = specs.run("--collect-only", "-q", "-k", "net or notebook").assert_code(0)
    assert collected(outcome) == [
        "vision/benchmarks.yml::bench_spec[net_infer_gen_size_1]",
        "vision/benchmarks.yml::bench_spec[net_infer_gen_size_8]",
        "vision/benchmarks.yml::bench_spec[net_train_real]",
    ]
    outcome.line("1 case needs --include-convergence or -k with the full name")
    outcome.line("1 case needs a notebook's kernel")
    named = specs.run("--collect-only", "-q", "-k", "Net_train_conv_gen").assert_code(0)
    assert collected(named) == ["vision/benchmarks.yml::bench_spec[net_train_conv_gen]"]
    included = specs.run("--collect-only", "-q", "-k", "conv", "--include-convergence")
    assert collected(included) == collected(named)
    # A folder's files are not collected.
    assert not collected(specs.run("--collect-only", "-q", file="vision"))


@pytest.mark.entry_point
def test_a_command_is_measured_recorded_and_its_columns_are_shown(specs: Specs) -> None:
    words = ("-k", "net_infer or net_train_real or plain", "-rN")
    data = f"--dataset-dir={specs.folder}"
    outcome = specs.run(*words, data).assert_code(0)
    outcome.line("vision/benchmarks.yml: pre_run_commands: not done here")
    outcome.line("net_infer_gen_size_8: samples/sec 100.0, size 8, both 800.0")
    records = specs.project.records()
    record = records["net_infer_gen_size_8"]
    assert record["throughput"]["unit"] == "samples/s"
    assert record["throughput"]["median"] == pytest.approx(100)
    assert record["throughput_mean"] == pytest.approx(100)
    assert record["rounds"]["count"] == 3
    assert record["latency"]["source"] == "the command"
    assert record["latency"]["p50_ms"] == pytest.approx(10.05, rel=0.01)
    assert record["counters"]["both"] == pytest.approx(800)
    assert record["spec"]["command"][:4] == ["mpirun", "--np", "1", "python3"]
    assert record["spec"]["metrics"]["throughput"]["values"] == pytest.approx([50, 100, 101, 99])
    assert record["memory"]["host_peak_rss_bytes"] > 1 << 20
    said = Path(record["spec"]["stdout"]).read_text(encoding="utf-8").splitlines()[0]
    assert said == f"where {specs.folder} {specs.folder} blue --size 8 blue"
    real = Path(records["net_train_real"]["spec"]["stdout"]).read_text(encoding="utf-8")
    assert f"--data {specs.folder}/images" in real
    # Without metrics the whole run is what is measured.
    assert records["plain_gen"]["throughput"]["unit"] == "runs/s"
    assert records["plain_gen"]["rounds"]["count"] == 1
    benchmarks = [line["benchmark"] for line in specs.project.journal() if "benchmark" in line]
    rows: List[Dict[str, str]] = list(csv.DictReader(csv_text(benchmarks).splitlines()))
    assert [row["variant"] for row in rows][:2] == ["net_infer_gen_size_1", "net_infer_gen_size_8"]
    assert float(rows[1]["both"]) == pytest.approx(800) and rows[1]["size"] == "8"
    # What has been measured is not measured again.
    again = specs.run(*words, data, "--resume").assert_code(0)
    again.line("4 cases are done")


def test_each_way_to_fail_is_one_message(specs: Specs) -> None:
    outcome = specs.run("-k", "hangs or fails or words or few or absent").assert_code(1)
    assert "Traceback" not in outcome.text
    text = " ".join(outcome.text.split())
    for message in (
        "the command of hangs_gen had not ended after 1 s (timeout), and was ended with everything",
        "the command of fails_gen ended with exit code 3 after",
        "the last lines of its standard error: this is the reason",
        "words_gen: throughput: 'many' matched, which is no number",
        "few_gen: throughput: 4 values matched 'throughput: (.*) s', more than skip: 4 must",
        "the command of absent_gen cannot be started: No such file or directory: no-such-program",
    ):
        assert message in text
    errors = next((specs.project.folder / "results" / "specs").glob("*/*/hangs_gen/stderr"))
    child = int(errors.read_text(encoding="utf-8").split()[1])
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-k", "unset"], "unset_gen: its command uses $NOBODY_SETS_THIS, which is not set"),
        (["-k", "train_real"], "net_train_real needs a data set, and DATASETS_DIR is not set"),
        (["-k", "needs"], "needs_gen needs no-such-thing>=2, and this Python has none"),
        (
            ["-k", "plain", "--dataset-dir=~no-such-user/x"],
            "~no-such-user/x: there is no home folder",
        ),
        (["-k", "plain", "--set=size=4"], "'size' is no parameter of the selected commands"),
        (["-k", "plain", "--steps=3"], "--steps: the command decides how often it reports"),
        (["-k", "net_infer", "--set=skip_by=luck"], "'luck' is not one of order, value"),
        (["-k", "plain", "--profile=out"], "--profile: a command on a host has no profile"),
        (["-k", "lost"], f"{LONG}, which cannot be used: File name too long"),
        (["-k", "same", "--set=b=2"], "same_gen and same_gen_a_1 would both be same_gen_a_1_b_2"),
    ],
)
def test_what_a_command_lacks_is_said_before_any_runs(
    specs: Specs, words: List[str], message: str
) -> None:
    outcome = specs.run(*words).assert_code(4)
    assert message in outcome.text
    assert not (specs.project.folder / "results" / "specs").exists()


def test_a_malformed_file_is_a_usage_error(specs: Specs) -> None:
    (specs.folder / "bad.yml").write_text("net:\n  cmd: x\n  skip: 1\n", encoding="utf-8")
    outcome = specs.run(file="vision/bad.yml").assert_code(4)
    assert [line for line in outcome.lines if line][1:] == []
    outcome.line("ERROR: vision/bad.yml, line 3: 'net': 'skip' is no key")


def test_a_file_outside_the_project_and_what_would_run(specs: Specs, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("elsewhere")
    for name in ("benchmarks.yml", "prog.py"):
        (outside / name).write_bytes((specs.folder / name).read_bytes())
    file = str(outside / "benchmarks.yml")
    lost = specs.run(file=file).assert_code(4)
    lost.line("lies outside the project; name the project as well: pytest conftest.py")
    words = (file, "-k", "fails or net_infer", "--set=size=8,16")
    outcome = specs.run(*words, "--dry-run", file="conftest.py").assert_code(0)
    assert "benchmarks.yml::bench_spec[net_infer_gen_size_16]" in outcome.text
    outcome.line("with COLOUR=blue:")
    outcome.line("    mpirun --np 1 python3 prog.py --size 16 blue")
    nowhere = ("--dry-run", "--dataset-dir=~nobody-at-all/x")
    outcome = specs.run(file, "-k", "fails", *nowhere, file="conftest.py").assert_code(0)
    outcome.line("  cannot run: there is no home folder for ~nobody-at-all")
    assert not any(map(str.isspace, outcome.lines))
    # Two of one name are told apart; each is measured again where it lies.
    files = (file, "vision/benchmarks.yml")
    (outside / "prog.py").write_text(PROGRAM.replace('"RATE", "100"', '"RATE", "50"'))
    (specs.folder / "prog.py").write_text(PROGRAM)
    chosen = ("-k", "net_infer_gen_size_1", "--processes=2")
    both = specs.run(*files, *chosen, file="conftest.py").assert_code(0)
    benchmarks: Dict[str, Any] = {}
    for line in specs.project.journal():
        if line["type"] == "case":
            benchmark = line["benchmark"]
            benchmarks.setdefault(benchmark["fullname"], benchmark["extra_info"]["ipubench"])
    # The name of a file outside is the same whichever others are named.
    first = Path(os.path.relpath(file, specs.project.folder)).as_posix()
    case = "bench_spec[net_infer_gen_size_1]"
    one, other = (benchmarks[f"{f}::{case}"] for f in (first, "vision/benchmarks.yml"))
    assert one["throughput_mean"] == pytest.approx(50)
    assert other["throughput_mean"] == pytest.approx(100)
    for record, folder in ((one, outside), (other, specs.folder)):
        kept = Path(record["spec"]["stdout"]).read_text(encoding="utf-8")
        assert kept.startswith(f"where {folder} ")
    both.line(f"{first}: net_infer_gen_size_1: samples/sec 50.00")
    both.line("vision/benchmarks.yml: net_infer_gen_size_1: samples/sec 100.0")
    both.line("2 passed")


def test_the_gate_sees_a_slower_command(specs: Specs) -> None:
    only = ("-k", "size_8")
    specs.run(*only, "--baseline-save=main", "--processes=1").assert_code(0)
    specs.run(*only, "--baseline=main", "--gate=2%", RATE="100.5").assert_code(0)
    judged = (*only, "--baseline=main", "--gate=2%", "--gate-cap=3")
    slower = specs.run(*judged, RATE="60").assert_code(1)
    slower.line("net_infer_gen_size_8 has become slower: 100 samples/s before, 60 samples/s now")
    # The other way to skip is another configuration, and a part of the identifier.
    other = specs.run(*only, "--baseline=main", "--gate=2%", "--set=skip_by=value")
    assert "net_infer_gen_size_8-skipbyvalue" in other.assert_code(6).text


def test_a_file_that_was_not_named_says_nothing_of_its_cases() -> None:
    one, other = (f"benchmarks.yml::bench_spec[{name}]" for name in ("one", "other"))
    entry = {"fullname": one, "extra_info": {"ipubench": {"spec": {}}}}
    assert not gone([entry], {"bench_fake.py::bench_fake[x]"})
    assert gone([entry], {other}) and not gone([entry], {one, other})


@pytest.mark.entry_point
def test_a_report_has_the_columns_beside_it(specs: Specs) -> None:
    pytest.importorskip("plotly", reason="reports need plotly: pip install '.[report]'")
    specs.run("-k", "size_8", "--report=out").assert_code(0)
    text = (specs.project.folder / "out" / "specs.csv").read_text(encoding="utf-8")
    assert text.startswith("case,benchmark,variant,samples/sec,size,both,throughput,")


@pytest.mark.parametrize(("outcome", "stays"), [("failed", False), ("skipped", True)])
def test_a_report_without_commands_leaves_no_columns_of_the_one_before(
    tmp_path: Path, outcome: str, stays: bool
) -> None:
    (tmp_path / "specs.csv").write_text("case\n")
    run = Run(JsonLinesFile(tmp_path / "none"), SessionResults(outcomes={"bench_x": outcome}))
    option = SimpleNamespace(report=str(tmp_path))
    session: Any = SimpleNamespace(config=SimpleNamespace(stash={run_key: run}, option=option))
    pytest_sessionfinish(session)
    assert (tmp_path / "specs.csv").exists() is stays and run.closing == []


def test_the_end_of_a_command_is_told_whatever_it_was(specs: Specs) -> None:
    program = """\
import os, sys
for _ in range(3000):
    print("x" * 99, file=sys.stderr)
print("last words", file=sys.stderr, flush=True)
os.kill(os.getpid(), 40)
"""
    (specs.folder / "prog.py").write_text(program, encoding="utf-8")
    text = " ".join(specs.run("-k", "plain").assert_code(1).text.split())
    assert "the command of plain_gen was killed by signal 40 after" in text
    assert f"{'x' * 99} last words" in text and "Traceback" not in text


def test_workers_measure_commands_one_at_a_time(specs: Specs) -> None:
    outcome = specs.run("-k", "net_infer", "-n", "2").assert_code(0)
    outcome.line("net_infer_gen_size_1: samples/sec 100.0, size 1, both 100.0")
    assert set(specs.project.records()) == {"net_infer_gen_size_1", "net_infer_gen_size_8"}


def test_nothing_is_left_of_a_command_whose_run_was_killed(specs: Specs) -> None:
    words = ["vision/benchmarks.yml", "--device=fake", "-k", "hangs", "--set=timeout=0"]
    spec = specs.folder / "benchmarks.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("timeout: 1}", "timeout: 500}"))
    run = start_pytest(specs.project.folder, specs.environment, *words)
    try:
        child = _wait_for_child(specs.project.folder / "results" / "specs")
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    deadline = time.monotonic() + 30
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(child)


def _wait_for_child(folder: Path) -> int:
    """Return the process number that the command writes once it has a child."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in folder.glob("*/*/hangs_gen/stderr"):
            found = re.match(r"child (\d+)\n", path.read_text(encoding="utf-8"))
            if found:
                return int(found.group(1))
        time.sleep(0.05)
    raise AssertionError("the command did not start")


def test_the_example_of_the_documentation_can_be_collected(project: Project) -> None:
    words = ("docs/examples/own-program.yml", "--device=fake", "--collect-only", "-q")
    outcome = run_pytest(ROOT, project.environment, *words).assert_code(0)
    assert len(collected(outcome)) == 2


def test_each_entry_of_the_documents_runs_a_case_that_there_is(project: Project) -> None:
    file = ROOT / "docs" / "examples" / "benchmarks.yml"
    commands = [
        template.words(template.fill(entry.command, variant), {})
        for entry in read_entries(file, "benchmarks.yml")
        for variant in entry.variants
    ]
    asked = [words[-1] for words in commands]
    files = sorted({word.partition("::")[0] for word in asked})
    words = ("--device=ipu", "--sweep", "--collect-only", "-q", *files)
    outcome = run_pytest(ROOT, project.environment, *words).assert_code(0)
    assert len(asked) == 31 and set(asked) <= set(outcome.lines)


def test_a_number_may_have_commas_between_thousands() -> None:
    metric = Metric("throughput", "")
    assert metric.values(["12,345.6", "1,234,567"]) == [12345.6, 1234567.0]
    with pytest.raises(MetricError, match="no number"):
        metric.values(["1,5"])
