"""Every form of a benchmarks.yml that the original runner documents, read and turned into cases.

The forms are in tests/stored/specs/forms.yml; each test names those that it covers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest

from ipubench.fixtures.case.cases import config_hash
from ipubench.fixtures.case.yaml_reader import parse
from ipubench.fixtures.machine.process import ServerProcess
from ipubench.plugins.benchmarks_yml import plugin, template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig, Wanted, cases_of, unknown_option
from ipubench.plugins.benchmarks_yml.command import Ran, words_of
from ipubench.plugins.benchmarks_yml.entry import Entry
from ipubench.plugins.benchmarks_yml.metrics import Metric, MetricError, search, seconds_of
from ipubench.plugins.benchmarks_yml.reader import entries_of, read_entries
from ipubench.plugins.benchmarks_yml.results import CommandResults, results_of
from ipubench.plugins.listing.describe import describe
from ipubench.plugins.record.text import safe_name

FORMS = Path(__file__).resolve().parents[1] / "stored" / "specs" / "forms.yml"
ENTRIES: Dict[str, Entry] = {entry.name: entry for entry in read_entries(FORMS, "forms.yml")}


def identifiers(name: str, device: str = "cpu", **assignments: List[str]) -> List[str]:
    return [case.id for case in cases_of(ENTRIES[name], Wanted(assignments, device))]


def config(name: str, number: int = 0, **assignments: List[str]) -> SpecConfig:
    found = list(cases_of(ENTRIES[name], Wanted(assignments, "cpu")))[number].config
    assert isinstance(found, SpecConfig)
    return found


def test_shared_blocks_are_no_entries_and_merge_keys_give_what_they_hold() -> None:
    assert list(ENTRIES) == [
        "train_real_pod16",
        "infer_gen_pod4",
        "infer_rows_synth",
        "train_conv_synth",
        "notebook_gen",
        "notebook_file_gen",
        "declared",
        "declared_otherwise",
        "measured_gen",
    ]
    train = ENTRIES["train_real_pod16"]
    assert [(m.name, m.skip, m.reduction) for m in train.metrics] == [
        ("throughput", 2, "mean"),
        ("loss", 0, "final"),
    ]
    assert train.output == (("samples/sec", "throughput"), ("loss", "loss"))
    assert train.unused == (
        "requirements_path",
        "required_apt_packages_path",
        "pre_run_commands",
    )
    # A mapping's own key wins over a merged one; several << of one mapping all count.
    assert ENTRIES["infer_rows_synth"].environment == {"RETRIES": "4"}
    assert ENTRIES["infer_gen_pod4"].environment["RETRIES"] == "3"
    assert [m.reduction for m in ENTRIES["infer_gen_pod4"].metrics] == [
        "mean",
        "mean",
        "min",
        "value",
    ]


def test_names_say_what_data_is_read_how_many_ipus_and_what_takes_long() -> None:
    assert {name: entry.data for name, entry in ENTRIES.items()} == {
        "train_real_pod16": "real",
        "infer_gen_pod4": "generated",
        "infer_rows_synth": "synthetic",
        "train_conv_synth": "synthetic",
        "notebook_gen": "generated",
        "notebook_file_gen": "generated",
        "declared": "generated",
        "declared_otherwise": "synthetic",
        "measured_gen": "real",
    }
    assert [name for name, entry in ENTRIES.items() if entry.converges] == ["train_conv_synth"]
    assert [name for name, entry in ENTRIES.items() if entry.notebook] == [
        "notebook_gen",
        "notebook_file_gen",
    ]
    assert config("train_real_pod16").ipus == 0
    (on_ipus,) = cases_of(ENTRIES["train_real_pod16"], Wanted({}, "ipu"))
    assert on_ipus.config.ipus == 16


def test_a_mapping_of_parameters_is_a_product_whose_first_name_changes_fastest() -> None:
    assert identifiers("infer_gen_pod4") == [
        "infer_gen_pod4_batchsize_1_request_type_SYNC",
        "infer_gen_pod4_batchsize_32_request_type_SYNC",
        "infer_gen_pod4_batchsize_1_request_type_ASYNC",
        "infer_gen_pod4_batchsize_32_request_type_ASYNC",
    ]


def test_a_list_of_parameters_has_a_variant_per_row() -> None:
    first, second = identifiers("infer_rows_synth")
    assert first == "infer_rows_synth_batchsize_1_model_resnet18"
    # A blank is no part of an identifier; the digest keeps names apart that differ only there.
    assert second.startswith("infer_rows_synth_batchsize_16_model_resnet_50.")


def test_set_replaces_a_parameter_and_other_options() -> None:
    names = identifiers("infer_gen_pod4", batchsize=["8"], skip_by=["value"])
    assert list(dict.fromkeys(names)) == [
        "infer_gen_pod4_batchsize_8_request_type_SYNC-skipbyvalue",
        "infer_gen_pod4_batchsize_8_request_type_ASYNC-skipbyvalue",
    ]
    assert config("train_real_pod16", timeout=["60"]).timeout == 60
    assert config("train_real_pod16", timeout=["7200"]).timeout == 3600
    wanted = Wanted({"skip_by": ["luck"], "size": ["1"]}, "cpu")
    (refused,) = cases_of(ENTRIES["train_real_pod16"], wanted)
    assert "'luck' is not one of order, value" in refused.error
    assert refused.lacks == {"size"}
    (refused,) = cases_of(ENTRIES["train_real_pod16"], Wanted({"steps": ["3"]}, "cpu"))
    assert refused.error.startswith("--steps: the command decides")


def test_values_that_no_name_of_a_command_shows_are_refused() -> None:
    wanted = Wanted({"timeout": ["5", "6"]}, "cpu")
    first, second = cases_of(ENTRIES["train_real_pod16"], wanted)
    refused = plugin._refused(first, second)
    message = (
        "--set: two commands of train_real_pod16 would both be train_real_pod16; give one value"
    )
    assert refused.error == message


def test_what_is_described_of_commands_is_what_set_takes() -> None:
    """A parameter that is called as what other options choose, such as the mode, is none."""
    items: Any = []
    cases: Any = []
    for case in cases_of(ENTRIES["infer_gen_pod4"], Wanted({}, "cpu")):
        found: Any = case.config
        more = (*found.parameters, ("mode", "fast"), ("name", "x"), ("synthetic-data", "1"))
        case = replace(case, config=replace(found, parameters=more))
        cases.append(case)
        spec = SimpleNamespace(params={"ipubench_case": case})
        items.append(SimpleNamespace(nodeid="b.yml::bench_spec[x]", callspec=spec))
    names = [line.split("=")[0].strip() for line in describe(items)[2:]]
    parameters = [name for name, _ in config("infer_gen_pod4").parameters]
    others = ["skip_by", "allow_wandb", "timeout", "compile_only"]
    assert names == [*parameters, *others]
    message = unknown_option("other", [case.config for case in cases])
    assert message.endswith(f"they have {', '.join([*sorted(parameters), *others])}")


def test_a_command_is_words_without_a_shell() -> None:
    known = {"DATASETS_DIR": "/data/x", "HOME": "/home/me"}
    train = words_of(config("train_real_pod16"), known)
    assert " ".join(train) == (
        "mpirun --tag-output --np 4 --allow-run-as-root python3 train.py "
        "--data-dir /data/x/imagenet-data --epochs 1"
    )
    kept = words_of(config("train_real_pod16", allow_wandb=["true"]), known)
    assert kept[-6:] == ["--wandb", "--wandb-project", "name", "--wandb-tags=one", "--epochs", "1"]
    only = words_of(config("train_real_pod16", compile_only=["yes"]), known)
    assert only[-1] == "--compile-only"
    # A line ends with a backslash, as in a shell script.
    gen = words_of(config("infer_gen_pod4", 3), known)
    assert gen[-4:] == ["--micro-batch-size", "32", "--request-type", "ASYNC"]
    assert "\\" not in "".join(gen)
    rows = words_of(config("infer_rows_synth", 1), known)
    assert rows[2:] == [
        *("--bs", "16", "--model", "resnet 50", "--json", '{"a": 1}', "--home", "/home/me"),
    ]


@pytest.mark.parametrize(
    ("command", "factor"),
    [
        ("mpirun --np 4 python3 x.py", 4),
        ("/opt/bin/mpirun --bind-to none --np=8 python3 x.py", 8),
        ("poprun --num-instances 4 --np 4 python3 x.py", 1),
        ("python3 x.py --np 4", 1),
        ("mpirun -n 4 python3 x.py", 1),
        ("mpirun --np many python3 x.py", 1),
    ],
)
def test_a_throughput_is_multiplied_by_the_processes_of_mpirun(command: str, factor: int) -> None:
    assert template.copies(command.split()) == factor


def test_reductions_and_both_ways_to_skip() -> None:
    values = [3.0, 10.0, 8.0, 9.0, 7.0]
    by_mean = Metric("throughput", "x", skip=2)
    assert fmean(by_mean.kept(values, "order")) == 8.0  # the earliest are dropped
    assert fmean(by_mean.kept(values, "value")) == 9.0  # the lowest
    latency = Metric("latency", "x", skip=2)
    assert fmean(latency.kept(values, "value")) == 6.0  # the highest
    for reduction, figure in (("final", 7.0), ("min", 3.0), ("value", 3.0)):
        assert Metric("a", "x", 2, reduction).kept(values, "order") == [figure]


def test_what_matches_is_of_both_streams(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_bytes(b"rate: 1 rate: 2\r\nbar 1%\rrate: 3\nbad \xff rate: 4\n")
    err.write_bytes(b"rate: 5\n")
    metric = Metric("rate", r"rate: (\d+)")
    found = search([metric], [out, err])
    assert metric.values(found["rate"], factor=2) == [2, 4, 6, 8, 10]
    with pytest.raises(MetricError, match="5 values matched .* more than skip: 5 must"):
        Metric("rate", "x", skip=5).values(found["rate"])
    with pytest.raises(MetricError, match="0 values matched 'x', at least one must"):
        Metric("rate", "x").values([])
    for word in ("1,5", "1,0000", "nan", "inf", ""):
        with pytest.raises(MetricError, match="which is no number"):
            Metric("rate", "x").values([word])


@pytest.mark.parametrize(
    ("titles", "regexp", "seconds"),
    [
        ([], "Latency (.*?) seconds", 1),
        ([], r"samples/sec, latency (.*?) ms", 1e-3),
        ([], r"(?:.*?) samples\/sec, latency ([\d.]+)", 1e-3),
        ([], r"calls per second; took (.*?)\susec", 1e-6),
        ([], "took (.*?) \u00b5s", 1e-6),
        ([], "took ([)\\d]+) msec", 1e-3),
        ([], "latency_us: *(?P<t>.*)", 1e-6),
        ([], "(?s)request's latency: (.*)", 1e-3),
        ([], "took (.*?) (?:of|in) Seconds", 1),
        ([], r"latency ([\d.]+)\s?us", 1e-6),
        ([], r"took (.*?) ?s\b", 1),
        ([], "took (.*?)(?: )?seconds?", 1),
        ([], r"took (.*?) *\(?usec", 1e-6),
        ([], "(?i)us: (?P<s>.*)", 1e-6),
        ([], r"samples\s?/\s?s, latency (.*)", 1e-3),
        ([], "took (.*?) u?s", 1e-3),  # of either
        ([], "took (.*?) (?:micro)?seconds", 1e-3),
        (["latency (us)"], "took (.*?) s", 1e-6),
        (["images/sec of s [ns]"], "took (.*?) s", 1e-9),
        (["latency s"], "took (.*?) ms", 1e-3),
        (["latency s"], "ms: (.*?), bytes", 1),
        (["samples/sec"], "took (.*?) us", 1e-6),
        (["latency"], "(.*)", 1e-3),
    ],
)
def test_the_unit_of_a_time(titles: List[str], regexp: str, seconds: float) -> None:
    assert seconds_of(titles, [regexp]) == seconds


def test_a_latency_in_another_unit_is_another_configuration(tmp_path: Path) -> None:
    def digest(unit: str) -> str:
        text = (
            f"a: {{cmd: x, data: {{latency: {{regexp: 'l (.*)'}}}}, output: [[{unit}, latency]]}}"
        )
        (entry,) = entries_of(parse(text, "f"), "f", tmp_path)
        (case,) = cases_of(entry, Wanted({}, "cpu"))
        return config_hash(case.config, case.overrides)

    assert digest("l(ms)") == digest("time")  # of which nothing is said
    assert digest("l(us)") != digest("l(ms)")


def test_values_beyond_what_a_float_can_hold_are_refused(tmp_path: Path) -> None:
    def results(*values: str, name: str = "throughput", np: str = "1") -> CommandResults:
        stream, none = tmp_path / "stdout", tmp_path / "stderr"
        stream.write_text("".join(f"{value} s\n" for value in values), encoding="utf-8")
        none.touch()
        text = f"a: {{cmd: x, data: {{{name}: {{regexp: '(.*) s'}}}}}}"
        (entry,) = entries_of(parse(text, "f"), "f", tmp_path)
        (case,) = cases_of(entry, Wanted({}, "cpu"))
        assert isinstance(case.config, SpecConfig)
        return results_of(
            entry, case.config, Ran(["mpirun", "--np", np, "x"], stream, none, 1.0, 1)
        )

    assert results("4", "8", np="2").rounds == [1 / 8, 1 / 16]
    # More digits than a number of processes has are no number of processes.
    assert results("4", np="9" * 400).rounds == [1 / 4]
    for name in ("throughput", "latency"):
        for value in ("1e-320", "1e-21", "1e21"):
            with pytest.raises(MetricError, match=f"matched, which no {name} can be"):
                results(value, name=name)
    with pytest.raises(MetricError, match="accuracy: the values that matched have no mean"):
        results("1e308", "1e308", name="accuracy")
    with pytest.raises(MetricError, match="throughput: '1e308' matched, which is too large"):
        results("1e308", np="8")


def test_variables_are_replaced_where_a_shell_does_it() -> None:
    known = {"FLAGS": "--a  --b", "PATHS": 'it\'s "x" \\', "x": "no"}
    assert template.words("run $FLAGS/c $UNSET", known) == ["run", "--a", "--b/c", "$UNSET"]
    assert template.words("run $PATHS", known) == ["run", "it's", '"x"', "\\"]
    assert template.words('run "$FLAGS" "a ${PATHS}"', known) == [
        *("run", "--a  --b", 'a it\'s "x" \\'),
    ]
    assert template.words("awk '{print $1, $x}' \\$x \"it's $x\"", known) == [
        *("awk", "{print $1, $x}", "$x", "it's no"),
    ]
    command = "x $1 '$A' \"$B '$C'\" ${D} \\$E $B"
    assert template.variables(command) == ["B", "C", "D"]
    for fine in ("x 'a;b' \"c|d\" e\\&f --g=h", "python3 -c 'print(`1`)'", "x $1", "x '${A:-b}'"):
        assert template.problem(fine) == ""


def test_what_a_shell_does_with_a_variable_stays_as_it_is_written() -> None:
    """Within single quotes it is a command's own; elsewhere it is refused."""
    for text in ("x '${BS:-32}'", "x '${BS:-{x}} ${A!r:=b}' {{", "x \\${BS:+a}"):
        assert template.fill(text, {"bs": "1"}) == text.replace("{{", "{")
    assert template.fill("x {bs} '${BS:-32}' ${BS}", {"bs": "1"}) == "x 1 '${BS:-32}' ${BS}"
    assert template.words(template.fill("sh -c 'echo ${BS:-32}'", {}), {"BS": "1"})[-1] == (
        "echo ${BS:-32}"
    )


def test_options_for_weights_and_biases_go_and_a_word_after_a_flag_stays() -> None:
    for given, kept in (
        ("--wandb train.txt", "train.txt"),
        ("--wandb True train.txt", "train.txt"),
        ("--wandb-project name train.txt", "train.txt"),
        ("--wandb --epochs 1", "--epochs 1"),
        ("-x --wandb-tags=a b", "-x b"),
    ):
        assert template.without_wandb(given.split()) == kept.split()


def test_names_of_cases_are_names_of_files() -> None:
    assert safe_name("net_b_1") == "net_b_1"
    unlike = ["a b", "a?b", "a_b", "..", ".", "", "../../etc", "x" * 300, "x" * 299 + "y"]
    names = [safe_name(text) for text in unlike]
    assert len(set(names)) == len(unlike)
    for name in names:
        assert 0 < len(name) < 240 and name[:1] not in ".-" and "/" not in name


def test_a_word_for_a_parameter_that_an_expression_reads_is_refused() -> None:
    (case, *_) = cases_of(ENTRIES["infer_gen_pod4"], Wanted({"batchsize": ["big"]}, "cpu"))
    assert case.error.endswith("'latency / batchsize': batchsize is 'big', which is no number")


def test_units_are_those_of_the_columns_or_of_the_expression() -> None:
    assert ENTRIES["train_real_pod16"].unit == "samples"
    assert ENTRIES["infer_rows_synth"].unit == "images"
    assert ENTRIES["declared"].unit == "items"
    assert ENTRIES["infer_gen_pod4"].latency_seconds == 1e-3


def test_derived_values_come_after_those_that_they_read() -> None:
    derived = ENTRIES["infer_gen_pod4"].derived
    assert list(derived) == ["per_item", "scaled"]
    per_item = derived["per_item"].value({"latency": 5.0, "batchsize": 4.0})
    assert derived["scaled"].value({"per_item": per_item}) == 2.5


def test_a_command_that_ends_at_once_was_started(tmp_path: Path) -> None:
    process = ServerProcess("a command", ["true"], tmp_path / "log")
    # Its number and its end may come in one piece.
    assert process._take(b'{"pid": 5}\n{"ended": 0, "peak": 1}\n')["pid"] == 5
    assert process.exit_code == 0
