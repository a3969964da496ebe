"""Thresholds by case and metric: gate.yml, the marker, and which of them wins."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, Optional, cast

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipubench.plugins.compare.policy import marker_thresholds, policy_path
from ipubench.plugins.compare.policy_file import Policy, PolicyError
from ipubench.plugins.record.record import METRICS, value_of
from ipubench.plugins.record.text import fraction, matches
from tests.support.harness import Project, run_pytest

RESNET = "bench_inference/bench_cnn.py::bench_cnn[resnet50-bs16]"
LSTM = "bench_kernels/bench_lstm.py::bench_lstm[lstm-bs16]"
HMC = "bench_kernels/bench_hmc.py::bench_hmc[hmc]"

EXAMPLE = """\
default: {throughput: 2%}
cases:
  "*resnet50*": {throughput: 3%, latency_p99: 10%, peak_memory: 5%, compile_time: 50%}
  "bench_kernels/bench_lstm.py::*": {throughput: 8%}
  "*bs16*": {latency_p99: 20%}
  "*hmc*": ignore
"""
EVERY_KIND = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)
RULES = st.dictionaries(
    st.sampled_from([*METRICS, "throughputs", ""]),
    st.sampled_from(["2%", "0%", "2000%", "x%", "ignore", "%"]) | EVERY_KIND,
)


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the policies of the tests are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("policies"))
        yield


def policy(text: str = EXAMPLE, gate: Optional[float] = None) -> Policy:
    path = Path("gate.yml")
    path.write_text(text, encoding="utf-8")
    return Policy.load(path, gate)


def error(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        policy(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("text", "kind"), [("", "pass"), ("inconclusive: fail\n", "fail")])
def test_a_policy_decides_what_becomes_of_open_cases(text: str, kind: str) -> None:
    assert policy(f"{text}default: {{throughput: 5%}}").inconclusive == kind
    assert "inconclusive" in error("inconclusive: maybe")


def test_the_last_matching_pattern_wins_metric_by_metric() -> None:
    assert policy().limits(RESNET, {}) == {
        "throughput": 0.03,
        "latency_p99": 0.2,
        "peak_memory": 0.05,
        "compile_time": 0.5,
    }
    assert policy().limits(LSTM, {}) == {"throughput": 0.08, "latency_p99": 0.2}


def test_a_policy_names_facts_that_have_to_be_the_same() -> None:
    assert policy().extra_info == ()
    named = policy("compare_extra_info: [batch_size, model]\ndefault: {throughput: 2%}", gate=0.1)
    assert (named.extra_info, named.gate) == (("batch_size", "model"), 0.1)


def test_a_case_that_nothing_names_has_the_default() -> None:
    limits = policy().limits("bench_other.py::bench_other[one]", {})
    assert limits == {"throughput": 0.02}


def test_an_ignored_case_has_no_thresholds() -> None:
    assert policy().limits(HMC, {"latency_p99": 0.1}) == {}


def test_a_later_pattern_judges_what_an_earlier_one_ignores() -> None:
    text = 'default: {latency_p99: 9%}\ncases: {"*": ignore, "*hmc*": {throughput: 7%}}'
    assert policy(text).limits(HMC, {"peak_memory": 0.6}) == {"throughput": 0.07}
    text = 'default: {throughput: 2%}\ncases: {"*": ignore, "*hmc*": {latency_p99: ignore}}'
    assert policy(text).limits(HMC, {}) == {}


def test_one_metric_can_be_ignored() -> None:
    text = 'default: {throughput: 2%, latency_p99: 9%}\ncases: {"*hmc*": {latency_p99: ignore}}'
    assert policy(text).limits(HMC, {}) == {"throughput": 0.02}


def test_what_is_said_of_fewer_cases_wins() -> None:
    marker = {"throughput": 0.04, "peak_memory": 0.6}
    other = "bench_other.py::bench_other[one]"
    with_gate = policy(gate=0.05)
    assert with_gate.limits(other, {}) == {"throughput": 0.05}
    assert with_gate.limits(other, marker) == marker
    assert with_gate.limits(LSTM, marker)["throughput"] == 0.08
    assert with_gate.limits(LSTM, marker)["peak_memory"] == 0.6


def test_without_a_file_the_command_line_judges_throughput() -> None:
    assert Policy(gate=0.05).limits(HMC, {}) == {"throughput": 0.05}


def test_an_identifier_is_a_pattern_as_it_stands() -> None:
    assert matches(RESNET, RESNET)
    assert matches("*[resnet50-*]", RESNET)
    assert matches("*bs1?]", RESNET)
    assert not matches("resnet50", RESNET)
    assert not matches("*RESNET*", RESNET)


def test_patterns_without_a_case_are_known() -> None:
    assert policy().unused([RESNET, HMC]) == ["bench_kernels/bench_lstm.py::*"]


@pytest.mark.parametrize(
    ("text", "value"), [("5%", 0.05), ("0.5%", 0.005), (".5%", 0.005), ("5 %", 0.05), ("150%", 1.5)]
)
def test_percentages(text: str, value: float) -> None:
    assert fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["5", "", "%", "0%", "-1%", "1e3%", "nan%", "1001%", "٣%", "5%%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a percentage above 0% and up to 1000%"):
        fraction(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the policy gate.yml is empty; write default: {throughput: 5%}"),
        ("- a", "the policy gate.yml, line 1: a policy holds default, cases"),
        ("\ncase: {}", "line 2: 'case' is no key of a policy; did you mean cases?; there are"),
        ("default:\n  througput: 2%", "line 2: 'througput' is no metric; did you mean throughput?"),
        ("default: {throughput: 3}", "throughput: '3' has no unit; write 3%"),
        ("default: {throughput: 0.03}", "'0.03' has no unit; write 3% or 0.03%"),
        ("default: {throughput: -3}", "'-3' has no unit; write a percentage, such as 3%"),
        ("default: {throughput: fast}", "throughput: 'fast' is not a percentage above 0% and up"),
        ("default: {throughput: [2%]}", "throughput needs a percentage, such as 3%, or ignore"),
        (
            "default: {throughput: !!int {a: b}}",
            "line 1: the type 'tag:yaml.org,2002:int' is",
        ),
        ("default: {}", "'default' says nothing; it holds percentages by metric"),
        ("default:", "line 1: 'default' holds percentages by metric"),
        ("default: 3%", "'default' holds percentages by metric, such as {throughput: 3%}"),
        ('cases:\n  "*a*": 3%', "line 2: '*a*' holds percentages by metric, such as"),
        ("cases: {1: ignore}", "line 1: a name is text; put it in quotes"),
        ("cases:\n  a: ignore\n  a: ignore", "line 3: 'a' stands twice here"),
        ("cases:\n  *resnet*: ignore", "write a text that begins with * in quotes"),
        ("cases: {a", "the policy gate.yml, line 1: this is not valid YAML"),
        ("compare_extra_info: batch", "line 1: compare_extra_info is a list of keys"),
        ("compare_extra_info: [1]", "a key of extra_info is a text"),
        pytest.param("[" * 600, "the policy gate.yml is nested too deeply", id="nested"),
        ("a: \0", "is not valid YAML"),
    ],
)
def test_a_policy_that_cannot_be_used_is_explained(text: str, message: str) -> None:
    assert message in error(text)


def test_a_policy_that_cannot_be_read_is_explained(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="gate.yml cannot be read: .*No such file"):
        Policy.load(tmp_path / "gate.yml")
    project = cast(pytest.Config, SimpleNamespace(rootpath=tmp_path))
    assert policy_path(None, project) is None
    (tmp_path / "gate.yml").symlink_to("nowhere")
    assert policy_path(None, project) == tmp_path / "gate.yml"  # a link stands for its file
    (tmp_path / "gate.yml").unlink()
    (tmp_path / "gate.yml").write_bytes(b"default: \xff")
    with pytest.raises(PolicyError, match="gate.yml, line 1: this is not UTF-8"):
        Policy.load(tmp_path / "gate.yml")


def read_or_refuse(text: str) -> None:
    """Any other exception fails the test."""
    try:
        read = policy(text)
    except PolicyError as problem:
        assert str(problem).startswith("the policy gate.yml")
        return
    for nodeid in (RESNET, LSTM, HMC):
        limits = read.limits(nodeid, {})
        assert set(limits) <= set(METRICS)
        assert all(0 < value <= 10 for value in limits.values())


quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@quick
@given(EVERY_KIND)
def test_any_yaml_value_is_read_or_refused(value: Any) -> None:
    read_or_refuse(yaml.safe_dump(value))


@quick
@given(
    st.fixed_dictionaries(
        {}, optional={"default": RULES, "cases": st.dictionaries(st.text(), RULES)}
    )
)
def test_anything_in_the_form_of_a_policy_is_read_or_refused(value: Dict[str, Any]) -> None:
    read_or_refuse(yaml.safe_dump(value))


@quick
@given(st.text() | st.text(alphabet="&*!%{}[]:,'\"|>?- \n<ab\\xU0", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


@quick
@given(st.integers(0, len(EXAMPLE) - 1), st.text(max_size=3))
def test_any_damage_of_a_policy_is_read_or_refused(where: int, what: str) -> None:
    read_or_refuse(EXAMPLE[:where] + what + EXAMPLE[where + 1 :])


def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("policy") / "gate.yml"

    @quick
    @given(st.binary(max_size=60))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            Policy.load(path)
        except PolicyError as problem:
            assert str(path) in str(problem)

    check()


SAMPLE: Dict[str, Any] = {
    "compile": "fresh",
    "compile_seconds": 2.0,
    "latency_p99_ms": 5.0,
    "memory_bytes": 1000,
}


def test_the_metrics_of_a_process() -> None:
    assert value_of(SAMPLE, "compile_time") == 2.0
    assert value_of(SAMPLE, "latency_p99") == 5.0
    assert value_of(SAMPLE, "peak_memory") == 1000


@pytest.mark.parametrize("compiled", ["cached", "reused"])
def test_a_model_that_was_kept_has_no_time_to_compile(compiled: str) -> None:
    assert value_of({**SAMPLE, "compile": compiled}, "compile_time") is None


@pytest.mark.parametrize("value", [None, 0, -1.0, float("nan"), float("inf"), "5", True])
def test_what_is_no_measurement_is_not_compared(value: Any) -> None:
    assert value_of({**SAMPLE, "latency_p99_ms": value}, "latency_p99") is None


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline of beta."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    measured.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    return measured.folder / "baselines"


def test_a_bad_policy_costs_no_measurement(stored: Project) -> None:
    (stored.folder / "gate.yml").write_text("default: {throughput: 3}")
    outcome = stored.run("-k", "beta", "--baseline=main").assert_code(4)
    assert "gate.yml, line 1: throughput: '3' has no unit; write 3%" in outcome.text
    assert "Traceback" not in outcome.text
    assert not stored.journals()
    stored.run("-k", "beta").assert_code(0)  # nothing is compared, so nothing is judged


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_a_policy_that_has_no_end_is_refused_at_once(stored: Project, make: Any) -> None:
    """A repository can have either."""
    make(stored.folder / "gate.yml")
    outcome = stored.run("-k", "beta", "--baseline=main").assert_code(4)
    assert "gate.yml" in outcome.text and "Traceback" not in outcome.text


def test_the_policys_file_alone_has_the_gates_time_said_beforehand(stored: Project) -> None:
    """Of the cases that it judges: no others are measured again."""
    (stored.folder / "gate.yml").write_text(
        'default: {throughput: 3%}\ncases: {"*generated*": ignore}'
    )
    outcome = stored.run("-k", "beta", "--baseline=main").assert_code(0)
    outcome.line("up to 16 fresh processes for each of 1 case that looks slower: ")


def test_a_named_policy_must_be_there_and_of_use(stored: Project) -> None:
    outcome = stored.run("--gate-policy=none.yml").assert_code(4)
    assert "--gate-policy needs something to compare with" in outcome.text
    outcome = stored.run("--baseline=main", "--gate-policy=none.yml").assert_code(4)
    assert "the policy none.yml cannot be read" in outcome.text


@pytest.mark.entry_point
def test_a_pattern_that_no_case_has_is_named_at_the_end(stored: Project) -> None:
    text = 'default: {throughput: 5%}\ncases: {"*beat*": ignore, "*alpha*": ignore}'
    (stored.folder / "gate.yml").write_text(text)
    outcome = stored.run("-k", "beta", "--baseline=main").assert_code(0)
    outcome.line("gate.yml: no case matches '*beat*'")
    assert "*alpha*" not in outcome.text
    # A file that was not collected may have the cases that a pattern means.
    (stored.folder / "bench_kernels").mkdir()
    (stored.folder / "bench_kernels" / "bench_more.py").write_text("")
    assert "no case matches" not in stored.run("-k", "beta", "--baseline=main").text


def test_a_pattern_may_mean_cases_of_what_was_not_collected(stored: Project) -> None:
    text = 'default: {throughput: 5%}\ncases: {"*three*": ignore, "*beat*": ignore}'
    (stored.folder / "gate.yml").write_text(text)
    settings = stored.folder / "pytest.ini"
    settings.write_text(
        "[pytest]\npython_files = bench_*.py test_*.py\npython_functions = bench_*\n"
    )
    more = "\n\nclass TestMore:\n    def bench_three(self, meter):\n        pass\n"
    path = stored.folder / "bench_fake.py"
    path.write_text(path.read_text() + more)
    words = ("--device=fake", "-k", "beta", "--baseline=main")
    whole = run_pytest(stored.folder, stored.environment, *words).assert_code(0)
    whole.line("gate.yml: no case matches '*beat*'")
    assert "*three*" not in whole.text
    for named in ("bench_fake.py::bench_fake", "bench_fake.py"):
        outcome = run_pytest(stored.folder, stored.environment, named, *words).assert_code(0)
        assert "no case matches" not in outcome.text
    settings.write_text(settings.read_text() + "testpaths = .\n")
    (stored.folder / "test_more.py").write_text("def bench_bad(meter):\n    assert False\n")
    assert "no case matches" not in stored.run("-k", "beta", "--baseline=main").text
    kept = ("--device=fake", "-k", "beta or bad", "--baseline=main", "-p", "cacheprovider")
    run_pytest(stored.folder, stored.environment, *kept).assert_code(1).line("'*beat*'")
    failed = run_pytest(stored.folder, stored.environment, *kept, "--lf").assert_code(1)
    failed.line("(skipped 1 file)")
    assert "no case matches" not in failed.text


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (pytest.mark.gate("3%"), 'takes thresholds by name: gate(throughput="3%")'),
        (pytest.mark.gate(throughput=3), 'throughput is a percentage in quotes, such as "3%"'),
        (pytest.mark.gate(througput="3%"), "'througput' is no metric; did you mean throughput?"),
        (pytest.mark.gate(throughput="fast"), "throughput: 'fast' is not a percentage above 0%"),
    ],
)
def test_a_bad_marker_is_explained(marker: pytest.MarkDecorator, message: str) -> None:
    item: Any = SimpleNamespace(nodeid=RESNET, iter_markers=lambda name: [marker.mark])
    with pytest.raises(PolicyError) as caught:
        marker_thresholds(item)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"the marker gate of {RESNET}")


def test_a_bad_marker_costs_no_measurement(stored: Project) -> None:
    source = (stored.folder / "bench_fake.py").read_text()
    marked = source.replace("def bench_fake(", "@pytest.mark.gate(throughput=3)\ndef bench_fake(")
    marked = marked.replace("\nimport os\n", "\nimport os\n\nimport pytest\n")
    (stored.folder / "bench_fake.py").write_text(marked)
    outcome = stored.run("-k", "beta", "--baseline=main", "--gate=5%").assert_code(4)
    assert 'throughput is a percentage in quotes, such as "3%"' in outcome.text
    assert "the marker gate of bench_fake.py::bench_fake[beta-" in outcome.text
    assert stored.records() == {}
