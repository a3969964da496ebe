"""Configurations, identifiers and hashes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, FrozenSet, List, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipubench.fixtures.case.cases import (
    SWEEP,
    USUAL,
    CaseSet,
    Sweep,
    cases,
    config_hash,
    effective_options,
)
from ipubench.fixtures.case.options import CaseConfig, option, resolve_key

NONE: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class Sample(CaseConfig):
    """A configuration like a kernel's."""

    batch_size: int = option(2, "items", minimum=1)
    text: str = option("", "anything")
    words: Tuple[str, ...] = option((), "words")


@dataclass(frozen=True)
class Network(CaseConfig):
    """A configuration like a network's."""

    micro_batch_size: int = option(1, "images", minimum=1)


def identifiers(family: CaseSet) -> List[str]:
    return [family.identifier(config, NONE) for config, _ in family.configurations]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (Sample(name="x"), "x-synthetic"),
        (Sample(), "sample-synthetic"),
        (Sample(name="x", system="pod16"), "x-pod16-synthetic"),
    ],
)
def test_a_plain_case_shows_its_name_its_system_and_its_data(config: Sample, name: str) -> None:
    assert identifiers(CaseSet.of(config, {})) == [name]


def test_axes_with_several_values_are_shown_before_the_data() -> None:
    family = CaseSet.of(
        Sample(name="x"), {"data": ("synthetic", "real"), "mode": ("inference", "training")}
    )
    assert identifiers(family) == [
        "x-inference-synthetic",
        "x-training-synthetic",
        "x-inference-real",
        "x-training-real",
    ]


@pytest.mark.parametrize(
    ("entry", "axes", "message"),
    [
        (Sample(), {"mod": ("training",)}, r"@cases\(mod=...\): .* mode\?"),
        (Sample(), {"mode": ("trainning",)}, r"@cases\(mode=...\): 'trainning' "),
        (Sample(precision="32"), {}, r"@cases\(precision=...\): '32' .* 16.16"),
        (Sweep(Sample(), "batch_size", (0, 1)), {}, r"batch_size=...\): '0' "),
        (Sample(), {"mode": ()}, r"@cases\(mode=...\): "),
        (Sweep(Sample(), "batch_size", (1, 4), usual=(1, 2)), {}, r"\(batch_size=...\): usual .*2"),
        (Sample(), {"batch_size": ("2",)}, r"batch_size=...\): '2' .* int"),
    ],
)
def test_a_bench_file_is_checked_like_the_command_line(entry: Any, axes: Any, message: str) -> None:
    with pytest.raises(pytest.Collector.CollectError, match=message):
        cases(entry, **axes)
    cases(Sample(precision="32.32"), mode=("training",))
    assert cases(Sample(), batch_size=(size for size in (1, 2))).kwargs["batch_size"] == (1, 2)


def test_a_sweep_shows_its_batch_size_and_marks_its_middle_points() -> None:
    family = CaseSet.of(Sweep(Network(name="n"), "micro_batch_size", (1, 4, 8)), {})
    assert identifiers(family) == ["n-bs1-synthetic", "n-bs4-synthetic", "n-bs8-synthetic"]
    assert [tier for _, tier in family.configurations] == [USUAL, SWEEP, USUAL]
    sweep = Sweep(Network(name="n"), "micro_batch_size", (1, 4, 8, 64), usual=(1, 8))
    assert [tier for _, tier in CaseSet.of(sweep, {}).configurations] == [
        USUAL,
        SWEEP,
        USUAL,
        SWEEP,
    ]


def test_overrides_are_shown_and_the_number_of_steps_is_not() -> None:
    family = CaseSet.of(Sample(name="x"), {})
    config = Sample(name="x", batch_size=32, steps=7, precision="32.32", batches_per_step=9)
    changed = frozenset({"batch_size", "steps", "precision", "batches_per_step"})
    assert family.identifier(config, changed) == "x-synthetic-bs32-bps9-32.32"


@dataclass(frozen=True)
class Grown(Sample):
    """A configuration with options that were added later."""

    rate: float = option(0.1, "of something", later=True)


def test_a_later_option_changes_a_case_only_if_it_is_set() -> None:
    assert config_hash(Grown(), NONE) == config_hash(Sample(), NONE)
    assert config_hash(Grown(rate=0.2), NONE) != config_hash(Sample(), NONE)


@example("a/b", "a:b")
@given(st.text(), st.text())
def test_identifiers_contain_only_what_k_can_select_and_stay_distinct(one: str, two: str) -> None:
    family = CaseSet.of(Sample(name="x"), {})
    names = {
        text: family.identifier(Sample(name="x", text=text), frozenset({"text"}))
        for text in (one, two)
    }
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", name) for name in names.values())
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize(
    ("cls", "key", "found"),
    [
        (Sample, "batch_size", "batch_size"),
        (Sample, "batch-size", "batch_size"),
        (Sample, "micro_batch_size", "batch_size"),
        (Network, "batch-size", "micro_batch_size"),
        (Network, "device_iterations", "batches_per_step"),
        (Sample, "repeat", "steps"),
        (Sample, "iterations", "steps"),
        (Sample, "batchsize", None),
        (Network, "text", None),
    ],
)
def test_aliases_work_both_ways(cls: Any, key: str, found: Any) -> None:
    assert resolve_key(cls, key) == found


def test_the_hash_depends_on_what_is_measured() -> None:
    base = Sample(name="x")
    assert config_hash(base, NONE) == config_hash(Sample(name="x"), NONE)
    assert config_hash(base, NONE) != config_hash(Sample(name="x", batch_size=3), NONE)
    assert config_hash(base, NONE) == config_hash(Sample(name="x", steps=99), NONE)


@dataclass(frozen=True)
class Ported(Sample):
    """A configuration that declares an option again, and has two of its own."""

    steps: int = option(100, "more than usual")
    port: int = option(0, "of a server", same_case=True)
    timeout: int = option(0, "part of what is measured here")


def test_an_option_declares_that_it_changes_no_case() -> None:
    config, same = Ported(name="x"), Ported(name="x", steps=3, port=80)
    assert config_hash(config, NONE) == config_hash(same, NONE)
    assert config_hash(config, NONE) != config_hash(Ported(name="x", timeout=1), NONE)
    changed = frozenset({"steps", "port", "timeout"})
    assert CaseSet.of(config, {}).identifier(config, changed) == "x-synthetic-timeout0"


def test_a_host_calibrates_batches_per_step_unless_it_is_given() -> None:
    one, other = Sample(batches_per_step=1), Sample(batches_per_step=5)
    assert config_hash(one, NONE) == config_hash(other, NONE)
    given_here = frozenset({"batches_per_step"})
    assert config_hash(one, given_here) != config_hash(other, given_here)
    assert "batches_per_step" not in effective_options(one, NONE)
    ipu = Sample(system="ipu", batches_per_step=5)
    assert effective_options(ipu, NONE)["batches_per_step"] == 5
