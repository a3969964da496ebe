"""Thresholds by case and metric: gate.yml, the marker, and which of them wins."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, Optional

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipubench.plugins.compare.policy import marker_thresholds, policy_to_use
from ipubench.plugins.gate.policy_file import Policy, PolicyError
from ipubench.plugins.record.record import METRICS, sample_of, value_of
from ipubench.plugins.record.text import GateLimits, fraction, matches
from tests.support.command_line import given_options
from tests.support.harness import Project, run_pytest
from tests.support.stored import a_benchmark, changed

RESNET = "bench_inference/bench_cnn.py::bench_cnn[resnet50-bs16]"
LSTM = "bench_kernels/bench_lstm.py::bench_lstm[lstm-bs16]"
OTHER = "bench_other.py::bench_other[one]"
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
    """The folder for the tests' policies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("policies"))
        yield


def policy(text: str = EXAMPLE, gate: Optional[float] = None) -> Policy:
    path = Path("gate.yml")
    path.write_text(text, encoding="utf-8")
    return Policy.load(path, GateLimits(gate))


@pytest.mark.parametrize("start", ["inconclusive: ", "default: ", "cases: ", "x: ", ""])
@pytest.mark.parametrize("level", ["[&{0} {1}, *{0}]", "{{x: &{0} {1}, y: *{0}}}"])
def test_nested_aliases_are_refused_at_once(start: str, level: str) -> None:
    """Written out, they are a text of 2**60 words."""
    value = "x"
    for number in range(60):
        value = level.format(f"a{number}", value)
    with pytest.raises(PolicyError) as caught:
        policy(f"{start}{value}\n")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("text", "kind"), [("", "pass"), ("inconclusive: fail\n", "fail")])
def test_a_policy_decides_how_open_cases_end(text: str, kind: str) -> None:
    assert policy(f"{text}default: {{throughput: 5%}}").inconclusive == kind


@pytest.mark.parametrize(
    ("text", "nodeid", "marker", "gate", "limits"),
    [
        # For each metric the last matching pattern wins.
        (
            EXAMPLE,
            RESNET,
            {},
            None,
            {"throughput": 0.03, "latency_p99": 0.2, "peak_memory": 0.05, "compile_time": 0.5},
        ),
        (EXAMPLE, LSTM, {}, None, {"throughput": 0.08, "latency_p99": 0.2}),
        (EXAMPLE, OTHER, {}, None, {"throughput": 0.02}),
        (EXAMPLE, HMC, {"latency_p99": 0.1}, None, {}),
        # The pattern with fewer cases wins.
        (EXAMPLE, OTHER, {}, 0.05, {"throughput": 0.05}),
        (EXAMPLE, OTHER, {"throughput": 0.04}, 0.05, {"throughput": 0.04}),
        (EXAMPLE, LSTM, {"throughput": 0.04}, 0.05, {"throughput": 0.08, "latency_p99": 0.2}),
        # A later pattern judges a case that an earlier one ignores, and ignores one metric.
        (
            'default: {latency_p99: 9%}\ncases: {"*": ignore, "*hmc*": {throughput: 7%}}',
            HMC,
            {"peak_memory": 0.6},
            None,
            {"throughput": 0.07},
        ),
        (
            'default: {throughput: 2%, latency_p99: 9%}\ncases: {"*hmc*": {latency_p99: ignore}}',
            HMC,
            {},
            None,
            {"throughput": 0.02},
        ),
    ],
)
def test_the_allowed_loss_of_a_case(
    text: str,
    nodeid: str,
    marker: Dict[str, float],
    gate: Optional[float],
    limits: Dict[str, float],
) -> None:
    assert policy(text, gate).limits(nodeid, marker) == limits


def test_a_policy_names_facts_that_must_be_equal() -> None:
    assert policy().extra_info == ()
    named = policy("compare_extra_info: [batch_size, model]\ndefault: {throughput: 2%}", gate=0.1)
    assert (named.extra_info, named.gate.throughput) == (("batch_size", "model"), 0.1)


def test_an_identifier_is_a_literal_pattern() -> None:
    assert matches(RESNET, RESNET)
    assert matches("*[resnet50-*]", RESNET)
    assert matches("*bs1?]", RESNET)
    assert not matches("resnet50", RESNET)
    assert not matches("*RESNET*", RESNET)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5%", 0.05),
        ("0.5%", 0.005),
        (".5%", 0.005),
        ("5 %", 0.05),
        ("150%", 1.5),
        ("5", 0.05),
        ("2.5", 0.025),
    ],
)
def test_percentages(text: str, value: float) -> None:
    assert fraction(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["0.05", "", "%", "0%", "-1%", "1e3%", "nan%", "1001%", "٣%", "5%%"]
)
def test_other_texts_are_not_percentages(text: str) -> None:
    with pytest.raises(ValueError, match="percentage"):
        fraction(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"", "empty"),
        (b"- a", "line 1"),
        (b"\ncase: {}", "line 2: 'case'"),
        (b"inconclusive: maybe", "inconclusive"),
        (b"default:\n  througput: 2%", "line 2: 'througput'"),
        (b"default: {throughput: 3}", "throughput: '3'"),
        (b"default: {throughput: fast}", "throughput: 'fast'"),
        (b"default: {throughput: [2%]}", "throughput"),
        (b"default: {throughput: !!int {a: b}}", "line 1"),
        (b"default: {}", "'default'"),
        (b"default:", "'default'"),
        (b"default: 3%", "'default'"),
        (b'cases:\n  "*a*": 3%', "line 2: '*a*'"),
        (b"cases: {1: ignore}", "line 1"),
        (b"cases:\n  a: ignore\n  a: ignore", "line 3: 'a'"),
        (b"cases:\n  *resnet*: ignore", "in quotes"),
        (b"cases: {a", "line 1"),
        (b"compare_extra_info: batch", "compare_extra_info"),
        (b"compare_extra_info: [1]", "extra_info"),
        (b"[" * 600, "nested"),
        (b"a: \0", "YAML"),
        (b"default: \xff", "UTF-8"),
    ],
)
def test_an_unusable_policy_is_one_message(text: bytes, where: str) -> None:
    path = Path("gate.yml")
    path.write_bytes(text)
    with pytest.raises(PolicyError, match="gate.yml") as caught:
        Policy.load(path)
    assert where in str(caught.value) and "\n" not in str(caught.value)


def read_or_refuse(text: str) -> None:
    """Return a policy or None if it is refused; any other exception fails the test."""
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


@pytest.mark.nightly
@quick
@given(
    st.fixed_dictionaries(
        {}, optional={"default": RULES, "cases": st.dictionaries(st.text(), RULES)}
    )
)
def test_any_policy_like_data_is_read_or_refused(value: Dict[str, Any]) -> None:
    read_or_refuse(yaml.safe_dump(value))


SAMPLE: Dict[str, Any] = {
    "compile": "fresh",
    "compile_seconds": 2.0,
    "latency_p99_ms": 5.0,
    "memory_bytes": 1000,
}


@pytest.mark.nightly
@quick
@given(st.text() | st.text(alphabet="&*!%{}[]:,'\"|>?- \n<ab\\xU0", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


def test_only_measurements_are_compared() -> None:
    sample = sample_of(changed(a_benchmark([1.0]), {"record.latency.p99_ms": 0.0}), fresh=True)
    assert value_of(sample, "latency_p99") is None
    assert value_of(sample, "compile_time") == 2.0
    assert value_of(changed(sample, {"compile": "cached"}), "compile_time") is None


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a baseline of beta."""
    measured = Project(tmp_path_factory.mktemp("measured"))
    measured.run("-k", "beta", "--baseline-save=main", "--processes=1").assert_code(0)
    return measured.folder / "baselines"


@pytest.mark.entry_point
def test_an_unmatched_pattern_is_named_after_a_run_of_the_whole_suite(
    stored: Project,
) -> None:
    text = 'default: {throughput: 5%}\ncases: {"*beat*": ignore, "*alpha*": ignore}'
    (stored.folder / "gate.yml").write_text(text)
    words = ("--device=fake", "-k", "beta", "--baseline=main")
    outcome = run_pytest(stored.folder, stored.environment, *words).assert_code(0)
    outcome.line("gate.yml: no case matches '*beat*'")
    assert "*alpha*" not in outcome.text
    outcome = run_pytest(stored.folder, stored.environment, "bench_fake.py", *words)
    assert "no case matches" not in outcome.assert_code(0).text


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (pytest.mark.gate("3%"), "by name"),
        (pytest.mark.gate(throughput=3), "throughput"),
        (pytest.mark.gate(througput="3%"), "'througput'"),
        (pytest.mark.gate(throughput="fast"), "'fast'"),
    ],
)
def test_a_bad_marker_is_explained(marker: pytest.MarkDecorator, said: str) -> None:
    item: Any = SimpleNamespace(nodeid=RESNET, iter_markers=lambda name: [marker.mark])
    with pytest.raises(PolicyError) as caught:
        marker_thresholds(item)
    assert said in str(caught.value) and RESNET in str(caught.value)


@pytest.mark.parametrize(
    ("here", "there", "named", "applies", "noted"),
    [
        ("5%", "5%", None, "there", False),
        ("9%", "5%", None, "there", True),
        ("9%", "", None, "", True),
        ("", "5%", None, "there", True),
        ("", "", None, "", False),
        ("9%", "5%", "gate.yml", "here", False),
    ],
)
def test_the_policy_of_the_revision_applies_unless_one_is_named(
    tmp_path: Path, here: str, there: str, named: Optional[str], applies: str, noted: bool
) -> None:
    for name, text in (("here", here), ("there", there)):
        (tmp_path / name).mkdir()
        if text:
            (tmp_path / name / "gate.yml").write_text(f"default: {{throughput: {text}}}")
    place = SimpleNamespace(revision=SimpleNamespace(root=tmp_path / "there"))
    option = given_options(gate_policy=named, against="git:main")
    run: Any = SimpleNamespace(
        config=SimpleNamespace(option=option),
        against=SimpleNamespace(environment=place),
        gate_notes=[],
    )
    found = policy_to_use(run, tmp_path / "here" / "gate.yml" if here else None)
    assert found == (tmp_path / applies / "gate.yml" if applies else None)
    assert bool(run.gate_notes) == noted


def test_an_unusable_policy_costs_no_measurement(stored: Project) -> None:
    words = ("-k", "beta", "--baseline=main")
    assert "none.yml" in stored.refused(*words, "--gate-policy=none.yml").text
    # Without a gate no case regresses.
    assert "--gate" in stored.refused(*words, "--profile-on-regression").text
    policy = stored.folder / "gate.yml"
    for make in (
        lambda: policy.write_text("default: {throughput: 3}"),
        # A repository can contain either, and a reader would wait forever or never end.
        lambda: os.mkfifo(policy),
        lambda: policy.symlink_to("/dev/zero"),
    ):
        make()
        assert "gate.yml" in stored.refused(*words).text
        policy.unlink()
    source = (stored.folder / "bench_fake.py").read_text()
    marked = source.replace("def bench_fake(", "@pytest.mark.gate(throughput=3)\ndef bench_fake(")
    marked = marked.replace("\nimport os\n", "\nimport os\n\nimport pytest\n")
    (stored.folder / "bench_fake.py").write_text(marked)
    assert "marker gate" in stored.refused(*words, "--gate=5%").text
    assert stored.records() == {}
