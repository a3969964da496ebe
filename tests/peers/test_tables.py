"""The tables of a comparison: ratios, reasons, the sentence at the end."""

from __future__ import annotations

from typing import Optional

import pytest

from scripts.compare_peers.case import Row, named
from scripts.compare_peers.tables import Section, markdown, summary

pytestmark = pytest.mark.nightly

PACKAGES = {"torch": "2.1", "tensorflow": "2.20"}


def row(ratio: Optional[float] = None, **changes: object) -> Row:
    """Return a row of the group torch, with or without a ratio."""
    numbers = {} if ratio is None else {
        "ours": 100 * ratio, "theirs": 100.0, "ratio": ratio,
        "low": 0.95 * ratio, "high": 1.05 * ratio, "rounds": 9,
    }  # fmt: skip
    fields = {"family": "torch", "level": "native", "case": "net-bs1", "peer": "eager"}
    return Row(**{**fields, **numbers, **changes})  # type: ignore[arg-type]


def section(*rows: Row) -> Section:
    return Section("PyTorch", "native, a CPU, avx2, 2 threads", "images/s", rows)


def test_each_peer_has_its_ratio_or_the_reason_for_none() -> None:
    rows = [row(2.0), row(peer="timm", reason="No 'timm' | x"), row(case="", peer="")]
    page = markdown([section(*rows)], PACKAGES, "2026-01-02")
    assert "| net-bs1 |  | eager | 200.0 | 100.0 | 2.00 | 1.90 to 2.10 | 9 |" in page
    assert "not measured: No 'timm' \\| x" in page and "| all |" in page
    assert page.startswith("2026-01-02. torch 2.1, tensorflow 2.20.")
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {9}


def test_the_last_sentence_names_only_what_is_slower_beyond_its_interval() -> None:
    assert summary([section(row(reason="x"))]) == "Nothing was measured."
    assert summary([section(row(1.2), row(0.97))]).endswith("in 0 of 2 comparisons.")
    text = summary([section(row(1.2), row(0.8, peer="OpenVINO"))])
    assert " 1 of 2 " in text and text.endswith(": net-bs1 (native) against OpenVINO 0.80.")


def test_parts_of_names_choose_cases() -> None:
    names = ["a-bs1", "a-bs16", "b-bs1"]
    assert named(names, [], ["b-bs1"]) == ["b-bs1"]
    assert named(names, ["all"], []) == names
    assert named(names, ["a-", "bs16"], []) == ["a-bs1", "a-bs16"]
