"""Every form of a benchmarks.yml that the original runner and Graphcore's examples use.

The forms are in tests/stored/specs.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest

from ipubench.fixtures.case.cases import Case, config_hash
from ipubench.fixtures.case.yaml_reader import parse
from ipubench.fixtures.machine.process import ServerProcess
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig, Wanted, cases_of, unknown_option
from ipubench.plugins.benchmarks_yml.command import Ran, arguments_of
from ipubench.plugins.benchmarks_yml.command_results import CommandResults, columns, results_of
from ipubench.plugins.benchmarks_yml.entry import Entry
from ipubench.plugins.benchmarks_yml.metrics import Metric, MetricError, search, seconds_of
from ipubench.plugins.benchmarks_yml.reader import entries_of, read_entries
from ipubench.plugins.listing.describe import describe
from ipubench.plugins.record.text import safe_name
from tests.support.harness import ROOT

STORED = Path(__file__).resolve().parents[1] / "stored" / "specs"
FORMS, PUBLISHED = (
    {entry.name: entry for entry in read_entries(STORED / name, name)}
    for name in ("forms.yml", "published.yml")
)
ENTRIES: Dict[str, Entry] = {**FORMS, **PUBLISHED}


def cases(name: str, device: str = "cpu", **assignments: List[str]) -> List[Case]:
    return list(cases_of(ENTRIES[name], Wanted(assignments, device)))


def config(name: str, number: int = 0, **assignments: List[str]) -> SpecConfig:
    found = cases(name, "cpu", **assignments)[number].config
    assert isinstance(found, SpecConfig)
    return found


def results(entry: Entry, output: str, folder: Path, *words: str) -> CommandResults:
    """Return the results of an entry whose command prints this output."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    stdout.write_text(output, encoding="utf-8")
    stderr.touch()
    (case,) = cases_of(entry, Wanted({}, "cpu"))
    assert isinstance(case.config, SpecConfig)
    ran = Ran(list(words) or template.split(entry.command, {}), stdout, stderr, 60.0, 1)
    return results_of(entry, case.config, ran)


def test_shared_blocks_are_not_entries_and_merge_keys_copy_them() -> None:
    assert [(name, one.data) for name, one in FORMS.items()] == [
        ("train_real_pod16", "real"),
        ("infer_gen_pod4", "generated"),
        ("infer_rows_synth", "synthetic"),
        ("train_conv_synth", "synthetic"),
        ("notebook_gen", "generated"),
        ("notebook_file_gen", "generated"),
        ("declared", "generated"),
        ("declared_otherwise", "synthetic"),
        ("measured_gen", "real"),
    ]
    # A block that entries merge is shared, whatever its name.
    assert list(PUBLISHED) == [
        *("bert_infer_gen_pod4", "vae_train_synth_pod4", "detection_infer_gen_pod4"),
    ]
    train = FORMS["train_real_pod16"]
    assert [(m.name, m.skip, m.reduction) for m in train.metrics] == [
        ("throughput", 2, "mean"),
        ("loss", 0, "final"),
    ]
    assert train.output == (("samples/sec", "throughput"), ("loss", "loss"))
    assert train.unused == ("requirements_path", "required_apt_packages_path", "pre_run_commands")
    # A mapping's own key overrides a merged one; several << in one mapping all apply.
    assert FORMS["infer_rows_synth"].environment == {"RETRIES": "4"}
    assert FORMS["infer_gen_pod4"].environment["RETRIES"] == "3"
    assert [name for name, one in FORMS.items() if one.converges] == ["train_conv_synth"]
    assert [name for name, one in FORMS.items() if one.notebook] == [
        *("notebook_gen", "notebook_file_gen"),
    ]
    assert config("train_real_pod16").ipus == 0
    assert [case.config.ipus for case in cases("train_real_pod16", "ipu")] == [16]


def test_parameters_make_variants() -> None:
    """The first name of a mapping changes fastest; a list has one variant per row."""
    assert [case.id for case in cases("infer_gen_pod4")] == [
        "infer_gen_pod4_batchsize_1_request_type_SYNC",
        "infer_gen_pod4_batchsize_32_request_type_SYNC",
        "infer_gen_pod4_batchsize_1_request_type_ASYNC",
        "infer_gen_pod4_batchsize_32_request_type_ASYNC",
    ]
    first, second = (case.id for case in cases("infer_rows_synth"))
    assert first == "infer_rows_synth_batchsize_1_model_resnet18"
    # Identifiers have no blanks; the digest distinguishes names that differ only in blanks.
    assert second.startswith("infer_rows_synth_batchsize_16_model_resnet_50.")
    unlike = ["a b", "a?b", "a_b", "..", ".", "", "../../etc", "x" * 300, "x" * 299 + "y"]
    names = [safe_name(text) for text in unlike]
    assert len(set(names)) == len(unlike)
    assert all(0 < len(name) < 240 and name[0] not in ".-" and "/" not in name for name in names)


def test_set_replaces_a_parameter_and_other_options() -> None:
    names = [case.id for case in cases("infer_gen_pod4", batchsize=["8"], skip_by=["value"])]
    assert list(dict.fromkeys(names)) == [
        "infer_gen_pod4_batchsize_8_request_type_SYNC-skipbyvalue",
        "infer_gen_pod4_batchsize_8_request_type_ASYNC-skipbyvalue",
    ]
    assert config("train_real_pod16", timeout=["60"]).timeout == 60
    assert config("train_real_pod16", timeout=["7200"]).timeout == 3600
    (refused,) = cases("train_real_pod16", skip_by=["luck"], size=["1"])
    assert "'luck'" in refused.error and refused.lacks == {"size"}
    (refused,) = cases("train_real_pod16", steps=["3"])
    assert refused.error.startswith("--steps: ")
    (refused, *_) = cases("infer_gen_pod4", batchsize=["big"])
    assert "'big'" in refused.error and refused.lacks == set()


def test_the_described_parameters_of_commands_are_those_that_set_takes() -> None:
    """A parameter named like another option's choice, such as the mode, is not one."""
    text = "a: {cmd: x, parameters: {size: 1, mode: fast, name: x, synthetic-data: 1}}"
    (entry,) = entries_of(parse(text, "f"), "f", Path())
    (case,) = cases_of(entry, Wanted({}, "cpu"))
    spec = SimpleNamespace(params={"ipubench_case": case})
    items: Any = [SimpleNamespace(nodeid="b.yml::bench_spec[x]", callspec=spec)]
    names = [line.split("=")[0].strip() for line in describe(items)[2:]]
    assert names == ["size", "skip_by", "allow_wandb", "timeout", "compile_only"]
    configs: Any = [case.config]
    assert unknown_option("other", configs).endswith(", ".join(names))


def test_a_command_is_split_without_a_shell() -> None:
    known = {"DATASETS_DIR": "/data/x", "HOME": "/home/me"}
    assert " ".join(arguments_of(config("train_real_pod16"), known)) == (
        "mpirun --tag-output --np 4 --allow-run-as-root python3 train.py "
        "--data-dir /data/x/imagenet-data --epochs 1"
    )
    kept = arguments_of(config("train_real_pod16", allow_wandb=["true"]), known)
    assert kept[-6:] == ["--wandb", "--wandb-project", "name", "--wandb-tags=one", "--epochs", "1"]
    only = arguments_of(config("train_real_pod16", compile_only=["yes"]), known)
    assert only[-1] == "--compile-only"
    # As in a shell script, a backslash continues a line.
    gen = arguments_of(config("infer_gen_pod4", 3), known)
    assert gen[-4:] == ["--micro-batch-size", "32", "--request-type", "ASYNC"]
    assert arguments_of(config("infer_rows_synth", 1), known)[2:] == [
        *("--bs", "16", "--model", "resnet 50", "--json", '{"a": 1}', "--home", "/home/me"),
    ]


def test_variables_are_replaced_as_in_a_shell() -> None:
    known = {"FLAGS": "--a  --b", "PATHS": 'it\'s "x" \\', "x": "no"}
    for command, words in {
        "run $FLAGS/c $UNSET": ["run", "--a", "--b/c", "$UNSET"],
        "run $PATHS": ["run", "it's", '"x"', "\\"],
        'run "$FLAGS" "a ${PATHS}"': ["run", "--a  --b", 'a it\'s "x" \\'],
        "awk '{print $1, $x}' \\$x \"it's $x\"": ["awk", "{print $1, $x}", "$x", "it's no"],
        "sh -c 'echo ${x:-32}'": ["sh", "-c", "echo ${x:-32}"],
    }.items():
        assert template.split(command, known) == words
    assert template.variables("x $1 '$A' \"$B '$C'\" ${D} \\$E $B") == ["B", "C", "D"]
    for fine in ("x 'a;b' \"c|d\" e\\&f --g=h", "python3 -c 'print(`1`)'", "x $1", "x '${A:-b}'"):
        assert template.problem(fine) == ""
    filled = template.fill("x {bs} '${BS:-32}' ${BS} ${{C}} {{{bs}}}", {"bs": "1"})
    assert filled == "x 1 '${BS:-32}' ${BS} ${C} {1}"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--wandb train.txt", "train.txt"),
        ("--wandb True train.txt", "train.txt"),
        ("--wandb-project name train.txt", "train.txt"),
        ("--wandb --epochs 1", "--epochs 1"),
        ("-x --wandb-tags=a b", "-x b"),
    ],
)
def test_options_for_weights_and_biases_are_removed(given: str, kept: str) -> None:
    assert template.without_wandb(given.split()) == kept.split()


@pytest.mark.parametrize(
    ("command", "factor"),
    [
        ("mpirun --np 4 python3 x.py", 4),
        ("/opt/bin/mpirun --bind-to none --np=8 python3 x.py", 8),
        ("poprun --num-instances 4 --np 4 python3 x.py", 1),
        ("python3 x.py --np 4", 1),
        ("mpirun --np many python3 x.py", 1),
    ],
)
def test_a_throughput_is_multiplied_by_mpi_processes(command: str, factor: int) -> None:
    assert template.copies(command.split()) == factor


def test_reductions_and_both_ways_to_skip() -> None:
    values = [3.0, 10.0, 8.0, 9.0, 7.0]
    by_mean = Metric("throughput", "x", skip=2)
    assert fmean(by_mean.kept(values, "order")) == 8.0  # skips the earliest values
    assert fmean(by_mean.kept(values, "value")) == 9.0  # skips the lowest
    latency = Metric("latency", "x", skip=2)
    assert fmean(latency.kept(values, "value")) == 6.0  # skips the highest
    for reduction, figure in (("final", 7.0), ("min", 3.0), ("value", 3.0)):
        assert Metric("a", "x", 2, reduction).kept(values, "order") == [figure]


def test_both_output_streams_are_searched(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_bytes(b"rate: 1 rate: 2\r\nbar 1%\rrate: 3\nbad \xff rate: 4\n")
    err.write_bytes(b"rate: 5\n")
    metric = Metric("rate", r"rate: (\d+)")
    found = search([metric], [out, err])
    assert metric.values(found["rate"], factor=2) == [2, 4, 6, 8, 10]
    assert metric.values(["12,345.6", "1,234,567"]) == [12345.6, 1234567.0]
    for words, skip in ((found["rate"], 5), ([], 0), (["1,5"], 0), (["nan"], 0), ([""], 0)):
        with pytest.raises(MetricError):
            Metric("rate", "x", skip=skip).values(words)


@pytest.mark.parametrize(
    ("title", "seconds"),
    [
        ("latency(us)", 1e-6),
        ("Latency [\u00b5s]", 1e-6),
        ("p50 (of 9) ( S )", 1),
        ("latency in us", 1e-3),
        ("samples/sec", 1e-3),
    ],
)
def test_the_unit_of_a_time_stands_in_brackets(title: str, seconds: float) -> None:
    assert seconds_of(["latency", title]) == seconds


def test_a_rate_has_the_unit_of_its_column() -> None:
    units = {name: ENTRIES[name].unit for name in ("train_real_pod16", "infer_rows_synth")}
    assert units == {"train_real_pod16": "samples", "infer_rows_synth": "items"}
    for name in ("infer_gen_pod4", "detection_infer_gen_pod4"):
        assert ENTRIES[name].latency_seconds == 1e-3


def test_a_latency_in_another_unit_is_another_configuration(tmp_path: Path) -> None:
    def digest(unit: str) -> str:
        text = (
            f"a: {{cmd: x, data: {{latency: {{regexp: 'l (.*)'}}}}, output: [[{unit}, latency]]}}"
        )
        (entry,) = entries_of(parse(text, "f"), "f", tmp_path)
        (case,) = cases_of(entry, Wanted({}, "cpu"))
        return config_hash(case.config, case.overrides)

    assert digest("l(ms)") == digest("time")  # has no unit
    assert digest("l(us)") != digest("l(ms)")


def test_values_beyond_the_range_of_floats_are_refused(tmp_path: Path) -> None:
    def made(*values: str, name: str = "throughput", np: str = "1") -> CommandResults:
        text = f"a: {{cmd: x, data: {{{name}: {{regexp: '(.*) s'}}}}}}"
        (entry,) = entries_of(parse(text, "f"), "f", tmp_path)
        output = "".join(f"{value} s\n" for value in values)
        return results(entry, output, tmp_path, "mpirun", "--np", np, "x")

    assert made("4", "8", np="2").rounds == [1 / 12]
    for name in ("throughput", "latency"):
        for value in ("1e-320", "1e-21", "1e21", "0", "-1"):
            with pytest.raises(MetricError, match=name):
                made(value, name=name)
    with pytest.raises(MetricError, match="accuracy"):
        made("1e308", "1e308", name="accuracy")
    with pytest.raises(MetricError, match="too large"):
        made("1e308", np="8")


def test_the_latency_of_a_row_of_the_table_has_its_unit(tmp_path: Path) -> None:
    file = ROOT / "docs" / "examples" / "benchmarks.yml"
    entries = {entry.name: entry for entry in read_entries(file, "benchmarks.yml")}
    entry = entries["tf2_resnet50_serving_latency"]
    rows = {
        "    447 \u00b5s   612 \u00b5s": 0.447,
        "  0.8%    2.31 ms    3 ms   41%": 2.31,
        "  0.8%      1.2 s  1.3 s  pass   +1.0%": 1200.0,
    }
    for row, milliseconds in rows.items():
        output = f"[1/1] bench[a-pod4] 1,234 images/s (1 s)\n  a-pod4-bs1-generated  1,234{row}\n"
        found = results(entry, output, tmp_path)
        assert found.figures == {"throughput": 1234.0, "latency": pytest.approx(milliseconds)}
        assert found.latencies == [pytest.approx(milliseconds / 1000)]
    with pytest.raises(MetricError, match="not a number"):
        Metric("latency", "x").values(["447 files"])


def test_derived_values_follow_the_values_that_they_read() -> None:
    derived = FORMS["infer_gen_pod4"].derived
    assert list(derived) == ["per_item", "scaled"]
    per_item = derived["per_item"].value({"latency": 5.0, "batchsize": 4.0})
    assert derived["scaled"].value({"per_item": per_item}) == 2.5


def test_names_in_braces_and_numbers_are_columns_or_derived_values(tmp_path: Path) -> None:
    entry = PUBLISHED["bert_infer_gen_pod4"]
    output = (
        "[1,0]<stdout>:Throughput: 100 sequences/s\n"
        "[1,0]<stdout>:Per-sample: Mean Latency= 0.25, p99 Latency= 0.5\n"
    )
    found = results(entry, output, tmp_path)
    assert found.derived == {"latency": 250.0, "latency_p99": 500.0}
    wanted: List[Tuple[str, object]] = [
        ("Batchsize", "80"),
        ("Sequences/s", 400.0),
        ("Latency(ms)", 250.0),
        ("p99Latency(ms)", 500.0),
    ]
    assert columns(entry, config(entry.name), found) == wanted
    # A derived latency is the case's latency, like one that is read.
    assert (found.rounds, found.unit) == ([1 / 400], "Sequences")
    assert (found.latencies, found.source) == ([0.25], "the command")


def test_a_derived_throughput_is_the_case_rate(tmp_path: Path) -> None:
    entry = PUBLISHED["vae_train_synth_pod4"]
    found = results(entry, "rate 7 of 9\n| Time taken: 10\n", tmp_path)
    assert (found.rounds, found.unit) == ([1 / 1e5], "Images")
    # Another expression would give another rate the same name.
    expression = "100. * 10000. / {time_per_iters}"
    assert config(entry.name).metrics[-1] == ("throughput", expression, 0, "derived")
    with pytest.raises(MetricError, match="throughput"):
        results(entry, "rate 7\n| Time taken: -10\n", tmp_path)
    # A match may contain line ends.
    found = results(entry, "rate\n 7\nrate 8\n| Time taken: 5", tmp_path)
    assert found.values["rate"] == [7.0, 8.0] and found.values["time_per_iters"] == [5.0]


def test_a_command_that_exits_at_once_counts_as_started(tmp_path: Path) -> None:
    process = ServerProcess("a command", ["true"], tmp_path / "log")
    # Its process number and its exit may arrive together.
    assert process._take(b'{"pid": 5}\n{"ended": 0, "peak": 1}\n')["pid"] == 5
    assert process.exit_code == 0
