"""Runs of the suite on a benchmarks.yml: selection, failures, recording, gate."""

from __future__ import annotations

import csv
import errno
import os
import re
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from ipubench.plugins.baseline.entries import gone
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig, Wanted, cases_of
from ipubench.plugins.benchmarks_yml.command import needs
from ipubench.plugins.benchmarks_yml.command_results import csv_text
from ipubench.plugins.benchmarks_yml.reader import read_entries
from ipubench.plugins.record.structs import Spec
from ipubench.plugins.results.lines import CaseLine, read_lines
from tests.support.harness import ROOT, Outcome, Project, listed, run_pytest, start_pytest
from tests.support.stored import a_benchmark, changed

NEEDED = "pytest_benchmark.plugin"
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
    """A project with a file of commands in a subfolder."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder / "vision"
        self.folder.mkdir()
        (self.folder / "prog.py").write_text(PROGRAM, encoding="utf-8")
        (self.folder / "benchmarks.yml").write_text(
            SPEC.replace("{program}", "python3 prog.py").replace("LONG", LONG), encoding="utf-8"
        )
        (self.folder / "needs.txt").write_text("-r x.txt\npytest>=1\nno-such-thing>=2  # why\n")
        # The part of mpirun that these tests need.
        tool = project.folder / "bin" / "mpirun"
        tool.parent.mkdir()
        tool.write_text('#!/bin/sh\nshift 2\nexec "$@"\n', encoding="utf-8")
        tool.chmod(0o755)
        self.environment = {
            **project.environment,
            "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}",
        }

    def refused(self, *words: str, file: str = "vision/benchmarks.yml") -> Outcome:
        return self.listed(*words, file=file).assert_code(4)

    def listed(self, *words: str, file: str = "vision/benchmarks.yml") -> Outcome:
        return listed(self.project.folder, self.environment, file, "--device=fake", *words)

    def run(self, *words: str, file: str = "vision/benchmarks.yml", **environ: str) -> Outcome:
        # Importing other packages' plugins takes longer than the commands.
        lean = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": NEEDED}
        alone = {} if "-n" in words else lean
        environment = {**self.environment, **alone, **environ}
        return run_pytest(self.project.folder, environment, file, "--device=fake", *words)


@pytest.fixture
def specs(project: Project) -> Iterator[Specs]:
    yield Specs(project)


def collected(outcome: Outcome) -> List[str]:
    return [line for line in outcome.lines if re.fullmatch(r"\S+::\S+", line)]


def test_entries_are_cases_whose_identifiers_begin_with_the_file(specs: Specs) -> None:
    # Even if the project collects other functions.
    words = ("--collect-only", "-q", "-k", "net or notebook", "-o", "python_functions=test_*")
    outcome = specs.listed(*words).assert_code(0)
    assert collected(outcome) == [
        "vision/benchmarks.yml::bench_spec[net_infer_gen_size_1]",
        "vision/benchmarks.yml::bench_spec[net_infer_gen_size_8]",
        "vision/benchmarks.yml::bench_spec[net_train_real]",
    ]
    outcome.line("1 case needs -k ")
    outcome.line("1 case needs a notebook's kernel")
    named = specs.listed("--collect-only", "-q", "-k", "Net_train_conv_gen").assert_code(0)
    assert collected(named) == ["vision/benchmarks.yml::bench_spec[net_train_conv_gen]"]
    # Files in a folder are not collected.
    assert not collected(specs.listed("--collect-only", "-q", file="vision"))


@pytest.mark.entry_point
def test_a_command_is_measured_recorded_and_its_columns_are_shown(specs: Specs) -> None:
    words = ("-k", "net_infer or net_train_real or plain", "-rN")
    data = f"--dataset-dir={specs.folder}"
    outcome = specs.run(*words, data).assert_code(0)
    outcome.line("vision/benchmarks.yml: pre_run_commands: ")
    outcome.line("net_infer_gen_size_8: samples/sec 100.0, size 8, both 800.0")
    outcome.line("(4 values, 50.00 to 101.0)")
    records = specs.project.records()
    record = records["net_infer_gen_size_8"]
    assert record["throughput"]["unit"] == "samples/s"
    assert record["throughput"]["median"] == pytest.approx(100)
    assert record["throughput_mean"] == pytest.approx(100)
    assert record["rounds"]["count"] == 1
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
    # Without metrics the whole run is measured.
    assert records["plain_gen"]["throughput"]["unit"] == "runs/s"
    assert records["plain_gen"]["rounds"]["count"] == 1
    lines = read_lines(specs.project.journals()[-1])
    benchmarks = [line.benchmark for line in lines if isinstance(line, CaseLine)]
    rows: List[Dict[str, str]] = list(csv.DictReader(csv_text(benchmarks).splitlines()))
    assert [row["variant"] for row in rows][:2] == ["net_infer_gen_size_1", "net_infer_gen_size_8"]
    assert float(rows[1]["both"]) == pytest.approx(800) and rows[1]["size"] == "8"
    # A measured command is not measured again.
    again = specs.run(*words, data, "--resume").assert_code(0)
    again.line("4 cases are done")


def test_each_kind_of_failure_is_one_message(specs: Specs) -> None:
    outcome = specs.run("-k", "hangs or fails or words or few or absent").assert_code(1)
    assert "Traceback" not in outcome.text
    text = " ".join(outcome.text.split())
    for message in (
        "hangs_gen had not ended after 1 s (timeout)",
        "fails_gen ended with exit code 3 after",
        "standard error: this is the reason",
        "words_gen: throughput: 'many' matched, which is not a number",
        "few_gen: throughput: 4 values matched",
        "absent_gen cannot be started: No such file or directory: no-such-program",
    ):
        assert message in text
    assert not _alive(_child(specs.project.folder / "results" / "specs"))


def _child(folder: Path) -> int:
    """Return the process that the command printed as its child."""
    (errors,) = folder.glob("*/*/hangs_gen/stderr")
    return int(errors.read_text(encoding="utf-8").split()[1])


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_missing_requirements_are_reported_before_any_command_runs(specs: Specs) -> None:
    for words, named in (
        ("-k unset", "$NOBODY_SETS_THIS"),
        ("-k plain --dataset-dir=~no-such-user/x", "~no-such-user/x"),
        ("-k plain --set=size=4", "'size'"),
        ("-k plain --steps=3", "--steps: "),
        ("-k plain --profile=out", "--profile: "),
        ("-k same --set=b=2", "same_gen_a_1_b_2"),
    ):
        assert named in specs.refused(*words.split()).text
    assert not (specs.project.folder / "results" / "specs").exists()


def test_a_command_checks_its_requirements(specs: Specs) -> None:
    entries = {one.name: one for one in read_entries(specs.folder / "benchmarks.yml", "b.yml")}

    def missing(name: str, **base: str) -> str:
        (case,) = cases_of(entries[name], Wanted({}, "cpu"))
        assert isinstance(case.config, SpecConfig)
        return needs(entries[name], case.config, base)

    assert "DATASETS_DIR" in missing("net_train_real")
    assert missing("net_train_real", DATASETS_DIR="/data") == missing("plain_gen") == ""
    assert "no-such-thing>=2" in missing("needs_gen")
    assert os.strerror(errno.ENAMETOOLONG) in missing("lost_gen")


def test_a_malformed_file_is_a_usage_error(specs: Specs) -> None:
    (specs.folder / "bad.yml").write_text("net:\n  cmd: x\n  skip: 1\n", encoding="utf-8")
    outcome = specs.refused(file="vision/bad.yml")
    assert [line for line in outcome.lines if line][1:] == []
    outcome.line("ERROR: vision/bad.yml, line 3: 'net': 'skip' ")


def test_a_file_outside_the_project_and_its_commands(specs: Specs, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("elsewhere")
    (outside / "benchmarks.yml").write_bytes((specs.folder / "benchmarks.yml").read_bytes())
    (outside / "prog.py").write_text(PROGRAM.replace('"RATE", "100"', '"RATE", "50"'))
    file = str(outside / "benchmarks.yml")
    words = (file, "-k", "fails or net_infer", "--set=size=8,16")
    outcome = specs.listed(*words, "--dry-run", file="conftest.py").assert_code(0)
    outcome.line("with COLOUR=blue:")
    outcome.line("    mpirun --np 1 python3 prog.py --size 16 blue")
    # Two files with one name are distinguished; each is measured again at its place.
    files = (file, "vision/benchmarks.yml")
    chosen = ("-k", "net_infer_gen_size_1", "--processes=2")
    both = specs.run(*files, *chosen, file="conftest.py").assert_code(0)
    lines = read_lines(specs.project.journals()[-1])
    benchmarks = [line.benchmark for line in lines if isinstance(line, CaseLine)]
    rates = {one.fullname.split("::")[0]: one.record.throughput_mean for one in benchmarks}
    first = Path(os.path.relpath(file, specs.project.folder)).as_posix()
    assert rates == {first: pytest.approx(50), files[1]: pytest.approx(100)}
    both.line(f"{first}: net_infer_gen_size_1: samples/sec 50.00")
    both.line("2 passed")


def test_the_gate_finds_a_slower_command(specs: Specs) -> None:
    only = ("-k", "size_8")
    specs.run(*only, "--baseline-save=main", "--processes=1").assert_code(0)
    specs.run(*only, "--baseline=main", "--gate=2%", RATE="100.5").assert_code(0)
    judged = (*only, "--baseline=main", "--gate=2%", "--gate-cap=3")
    slower = specs.run(*judged, RATE="60").assert_code(1)
    slower.line("net_infer_gen_size_8 has become slower: 100 samples/s before, 60 samples/s now")
    # The other kind of skip is another configuration, and part of the identifier.
    other = specs.run(*only, "--baseline=main", "--gate=2%", "--set=skip_by=value")
    assert "net_infer_gen_size_8-skipbyvalue" in other.assert_code(6).text


def test_cases_of_an_unselected_file_are_not_missing() -> None:
    one, other = (f"benchmarks.yml::bench_spec[{name}]" for name in ("one", "other"))
    spec = Spec("one", "", (), 1.0, None)
    entry = changed(a_benchmark([1.0], spec=spec), {"fullname": one})
    assert not gone([entry], {"bench_fake.py::bench_fake[x]"})
    assert gone([entry], {other}) and not gone([entry], {one, other})


@pytest.mark.entry_point
def test_a_report_has_a_file_of_the_columns(specs: Specs) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    specs.run("-k", "size_8", "--report=out").assert_code(0)
    text = (specs.project.folder / "out" / "specs.csv").read_text(encoding="utf-8")
    assert text.startswith("case,benchmark,variant,samples/sec,size,both,throughput,")
    # A report without commands removes the columns of the earlier report.
    specs.project.run("-k", "beta-synthetic", "--report=out").assert_code(0)
    assert not (specs.project.folder / "out" / "specs.csv").exists()


def test_workers_measure_commands_one_at_a_time(specs: Specs) -> None:
    outcome = specs.run("-k", "net_infer", "-n", "2").assert_code(0)
    outcome.line("net_infer_gen_size_1: samples/sec 100.0, size 1, both 100.0")
    assert set(specs.project.records()) == {"net_infer_gen_size_1", "net_infer_gen_size_8"}


def test_a_killed_run_leaves_no_process_of_its_command(specs: Specs) -> None:
    words = ["vision/benchmarks.yml", "--device=fake", "-k", "hangs", "--set=timeout=0"]
    spec = specs.folder / "benchmarks.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("timeout: 1}", "timeout: 500}"))
    run = start_pytest(specs.project.folder, specs.environment, *words)
    folder = specs.project.folder / "results" / "specs"
    try:
        while not any(path.stat().st_size for path in folder.glob("*/*/hangs_gen/stderr")):
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    child = _child(folder)
    while _alive(child):
        time.sleep(0.05)


def test_the_documented_example_can_be_collected(project: Project) -> None:
    words = ("docs/examples/own-program.yml", "--device=fake", "--collect-only", "-q")
    outcome = listed(ROOT, project.environment, *words).assert_code(0)
    assert len(collected(outcome)) == 2


def test_each_documented_command_collects_one_case(project: Project) -> None:
    file = ROOT / "docs" / "examples" / "benchmarks.yml"
    together: Dict[Tuple[str, ...], List[str]] = {}
    for entry in read_entries(file, "benchmarks.yml"):
        for variant in entry.variants:
            command = template.split(template.fill(entry.command, variant), {})
            assert command[:3] == ["python3", "-m", "pytest"]
            together.setdefault(tuple(command[3:-1]), []).append(command[-1])
    found = 0
    for words, asked in together.items():
        if words[-1] == "-k":
            asked = [" or ".join(asked)]
        outcome = listed(ROOT, project.environment, "--collect-only", "-q", *words, *asked)
        found += len(collected(outcome.assert_code(0)))
    assert found == sum(map(len, together.values())) == 45
