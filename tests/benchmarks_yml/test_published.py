"""Forms of the benchmarks.yml of Graphcore's examples that the runner's description does not name.

They are in tests/stored/specs/published.yml.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from ipubench.fixtures.case.yaml_reader import YamlError
from ipubench.plugins.benchmarks_yml import template
from ipubench.plugins.benchmarks_yml.cases import SpecConfig, Wanted, cases_of
from ipubench.plugins.benchmarks_yml.command import Ran
from ipubench.plugins.benchmarks_yml.entry import Entry
from ipubench.plugins.benchmarks_yml.expression import Expression
from ipubench.plugins.benchmarks_yml.metrics import MetricError
from ipubench.plugins.benchmarks_yml.reader import read_entries
from ipubench.plugins.benchmarks_yml.results import CommandResults, columns, results_of

PUBLISHED = Path(__file__).resolve().parents[1] / "stored" / "specs" / "published.yml"
ENTRIES: Dict[str, Entry] = {one.name: one for one in read_entries(PUBLISHED, "published.yml")}


def config(name: str) -> SpecConfig:
    (case,) = cases_of(ENTRIES[name], Wanted({}, "cpu"))
    assert isinstance(case.config, SpecConfig)
    return case.config


def results(name: str, output: str, folder: Path) -> CommandResults:
    """Return what an entry makes of what its command prints."""
    stdout, stderr = folder / "stdout", folder / "stderr"
    stdout.write_text(output, encoding="utf-8")
    stderr.touch()
    words = template.words(ENTRIES[name].command, {})
    return results_of(ENTRIES[name], config(name), Ran(words, stdout, stderr, 60.0, 1))


def test_a_block_that_entries_merge_is_shared_whatever_its_name() -> None:
    assert list(ENTRIES) == [
        "bert_infer_gen_pod4",
        "vae_train_synth_pod4",
        "detection_infer_gen_pod4",
    ]


@pytest.mark.parametrize(
    "text",
    [
        # It merges what others merge, too, and nothing merges what it has of its own.
        "c_options: &c {timeout: 5}\na:\n  <<: *c\n  env: {A: 1}\nb:\n  <<: *c\n  cmd: x\n",
        "a: &a {timeout: 5}\nb:\n  cmd: x\n",
    ],
)
def test_an_entry_that_lacks_its_command_is_no_shared_block(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spec.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(YamlError, match="'a' has no cmd"):
        read_entries(path, "spec.yml")


def test_names_in_braces_and_numbers_are_columns_and_derived_values(tmp_path: Path) -> None:
    output = (
        "[1,0]<stdout>:Throughput: 100 sequences/s\n"
        "[1,0]<stdout>:Per-sample: Mean Latency= 0.25, p99 Latency= 0.5\n"
    )
    found = results("bert_infer_gen_pod4", output, tmp_path)
    assert found.derived == {"latency": 250.0, "latency_p99": 500.0}
    shown = columns(ENTRIES["bert_infer_gen_pod4"], config("bert_infer_gen_pod4"), found)
    wanted: List[Tuple[str, object]] = [
        ("Batchsize", "80"),
        ("Sequences/s", 400.0),
        ("Latency(ms)", 250.0),
        ("p99Latency(ms)", 500.0),
    ]
    assert shown == wanted
    # A derived latency is the case's as one that is read.
    assert (found.rounds, found.unit) == ([1 / 400], "Sequences")
    assert (found.latencies, found.source) == ([0.25], "the command")


def test_a_derived_throughput_is_the_rate_of_the_case(tmp_path: Path) -> None:
    output = "rate 7 of 9\n| Time taken: 10\n"
    found = results("vae_train_synth_pod4", output, tmp_path)
    assert (found.rounds, found.unit) == ([1 / 1e5], "Images")
    # Another expression would be another rate under one name.
    assert config("vae_train_synth_pod4").metrics[-1] == (
        "throughput",
        "100. * 10000. / {time_per_iters}",
        0,
        "derived",
    )
    with pytest.raises(
        MetricError, match="throughput: -100000.0 was derived, which is not above zero"
    ):
        results("vae_train_synth_pod4", output.replace("10\n", "-10\n"), tmp_path)


def test_a_match_may_hold_the_ends_of_lines(tmp_path: Path) -> None:
    found = results("vae_train_synth_pod4", "rate\n 7\nrate 8\n| Time taken: 5", tmp_path)
    assert found.values["rate"] == [7.0, 8.0]
    assert found.values["time_per_iters"] == [5.0]


def test_what_the_command_prints_behind_a_time_is_its_unit() -> None:
    assert ENTRIES["detection_infer_gen_pod4"].latency_seconds == 1e-3


def test_braces_hold_one_name() -> None:
    assert Expression("{a} * 2 - {b}").value({"a": 3.0, "b": 1.0}) == 5.0
    assert Expression("{a} / {b}").names == {"a", "b"}
    for text in ("{a}{b}", "{2}", "{a * 2}", "{{a}}", "{}", "{a.b}", "'{a}'"):
        with pytest.raises(ValueError, match="holds numbers, names|is no expression"):
            Expression(text)
