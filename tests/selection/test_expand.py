"""Which cases a set has with the options of a command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence

import pytest

from ipubench.fixtures.case.cases import SWEEP, USUAL, CaseSet, Sweep
from ipubench.plugins.selection.expand import expand
from tests.support.fake_cases import Fake

AXES: Dict[str, Sequence[Any]] = {
    "mode": ("inference", "training"),
    "data": ("synthetic", "generated"),
}
SWEPT = CaseSet.of(Sweep(Fake(name="a"), "batch_size", (1, 4, 8)), AXES)
ON_IPU = CaseSet.of(Fake(name="b", system="ipu"), {})


@dataclass(frozen=True)
class Idle(Fake):
    """A configuration with two options that change nothing."""

    def idle(self) -> Dict[str, str]:
        return dict.fromkeys(("flavour", "half_partial"), "it is not tasted")


@pytest.mark.parametrize(
    ("family", "options", "names"),
    [
        (SWEPT, {}, ["a-bs8-training-synthetic"]),
        (SWEPT, {"data": "generated"}, ["a-bs8-training-generated"]),
        (SWEPT, {"assignments": {"batch_size": ["2"]}}, ["a-bs2-training-synthetic"] * 3),
        (SWEPT, {"quick_names": ("a",)}, ["a-bs8-training-synthetic"]),
        (SWEPT, {"quick_names": ("b",)}, []),
        (ON_IPU, {}, []),
    ],
)
def test_the_quick_cases_of_a_set(
    family: CaseSet, options: Dict[str, Any], names: List[str]
) -> None:
    found = expand(family, **{"assignments": {}, **options})
    assert [case.id for case in found if case.quick and not case.excluded] == names


def test_a_sweep_point_that_is_set_is_a_usual_case() -> None:
    tiers = [case.tier for case in expand(SWEPT, {})]
    assert tiers == [USUAL] * 4 + [SWEEP] * 4 + [USUAL] * 4
    assert {case.tier for case in expand(SWEPT, {"batch_size": ["2"]})} == {USUAL}


def test_the_first_error_is_reported_and_identifiers_are_unique() -> None:
    family = CaseSet.of(Fake(name="a", flavour="sour"), {})
    (case,) = expand(family, {"batch_size": ["x"], "requests": ["y"], "flag": ["yes"]})
    assert case.error.startswith("--set=batch_size=x: 'x' ")
    assert case.id.endswith("-invalid")
    (case,) = expand(family, {"flag": ["yes"], "nothing": ["1"]}, profiled=True)
    assert case.error.startswith("a: flavour sour ") and " flag " in case.error
    assert case.lacks == {"nothing"}


@pytest.mark.parametrize(
    ("system", "words", "refused"),
    [
        ("host", {"flavour": ["sweet"]}, "a: flavour=sweet "),
        ("host", {"flavour": ["plain"]}, ""),
        ("host", {"batch_size": ["2"]}, ""),
        ("host", {"half_partial": ["yes"]}, ""),
        ("ipu", {"half_partial": ["yes"]}, "a: half_partial=True "),
    ],
)
def test_an_option_without_effect_is_refused(
    system: str, words: Dict[str, List[str]], refused: str
) -> None:
    (case,) = expand(CaseSet.of(Idle(name="a", system=system), {}), words)
    assert case.error.startswith(refused) and bool(case.error) is bool(refused)
