"""Hosts that are slower than their equals are named, and equal ones are not."""

from __future__ import annotations

import random
from typing import Dict

import pytest

from ipubench.plugins.fleet.outliers import outliers


def fleet(
    slower: float, noise: float, cases: int, hosts: int, seed: int = 1
) -> Dict[str, Dict[str, float]]:
    draw = random.Random(seed)
    return {
        f"case{number}": {
            f"host{host}": 100.0 * (slower if host == 0 else 1.0) * draw.lognormvariate(0, noise)
            for host in range(hosts)
        }
        for number in range(cases)
    }


@pytest.mark.parametrize(("cases", "hosts"), [(6, 4), (3, 3)])
def test_a_slow_host_is_named_with_its_change(cases: int, hosts: int) -> None:
    (found,) = outliers(fleet(0.8, 0.003, cases, hosts))
    assert found.host == "host0"
    assert found.cases == cases
    assert found.change == pytest.approx(-0.2, abs=0.03)


def test_many_cases_reveal_what_noise_hides_in_one() -> None:
    assert [one.host for one in outliers(fleet(1.06, 0.04, cases=40, hosts=5))] == ["host0"]


def test_equal_hosts_are_rarely_named() -> None:
    named = [seed for seed in range(300) if outliers(fleet(1.0, 0.05, 6, 5, seed))]
    assert len(named) <= 6  # one in a hundred is expected


def test_less_than_the_smallest_change_is_not_named() -> None:
    assert outliers(fleet(0.98, 0.0005, cases=6, hosts=4)) == []


@pytest.mark.parametrize(("cases", "hosts"), [(2, 4), (6, 2), (0, 3)])
def test_too_few_cases_give_no_result(cases: int, hosts: int) -> None:
    assert outliers(fleet(0.5, 0.001, cases, hosts)) == []
