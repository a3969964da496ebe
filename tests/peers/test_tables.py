"""The tables of a comparison: widths, reasons, the sentence at the end."""

from __future__ import annotations

from typing import List, Optional

from hypothesis import given
from hypothesis import strategies as st

from scripts.compare_peers.case import Row, named
from scripts.compare_peers.tables import WIDTH, Section, markdown, summary, terminal

PACKAGES = {"torch": "2.1", "tensorflow": "2.20"}
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
NUMBERS = st.floats(min_value=1e-3, max_value=1e6)


def row(ratio: Optional[float] = None, **changes: object) -> Row:
    """Return a row of the family torch, measured where it has a ratio."""
    numbers = {} if ratio is None else {
        "ours": 100 * ratio, "theirs": 100.0, "ratio": ratio,
        "low": 0.95 * ratio, "high": 1.05 * ratio, "rounds": 9,
    }  # fmt: skip
    fields = {"family": "torch", "level": "native", "case": "net-bs1", "peer": "eager"}
    return Row(**{**fields, **numbers, **changes})  # type: ignore[arg-type]


def section(*rows: Row) -> Section:
    return Section("PyTorch", "native, a CPU, avx2, 2 threads", "images/s", rows)


@given(NAMES, NAMES, NUMBERS, st.floats(min_value=0.01, max_value=999), st.text(max_size=300))
def test_no_line_is_wider_than_a_terminal(
    case: str, peer: str, rate: float, ratio: float, reason: str
) -> None:
    rows = [
        row(ratio, case=case, peer=peer, ours=rate, theirs=rate, dtype="bfloat16"),
        row(case=case, peer=peer, reason=reason, dtype="bfloat16"),
    ]
    lines = terminal([section(*rows)], PACKAGES)
    assert max(map(len, lines)) <= WIDTH


def test_each_case_has_our_rate_and_each_peer_its_ratio() -> None:
    lines = terminal([section(row(2.0), row(0.5, peer="compiled"))], PACKAGES)
    ours, eager, compiled = (
        next(line.split() for line in lines if line.lstrip().startswith(word))
        for word in ("net-bs1", "eager", "compiled")
    )
    assert ours == ["net-bs1", "200.0"]
    assert eager == ["eager", "100.0", "2.00", "1.90", "to", "2.10", "9"]
    assert compiled[1:3] == ["100.0", "0.50"]


def test_what_was_not_measured_says_why_in_both_forms() -> None:
    rows: List[Row] = [row(2.0), row(peer="timm", reason="No module named 'timm' | x")]
    text = " ".join(terminal([section(*rows)], PACKAGES))
    assert "timm not measured: No module named 'timm'" in text
    page = markdown([section(*rows)], PACKAGES, "2026-01-02")
    assert "not measured: No module named 'timm' \\| x" in page
    assert page.startswith("2026-01-02. torch 2.1, tensorflow 2.20.")
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {9}


def test_a_whole_family_that_cannot_run_is_one_row() -> None:
    alone = row(case="", peer="", reason="this machine has no AVX2")
    assert "  not measured: this machine has no AVX2" in terminal([section(alone)], PACKAGES)
    assert "| all |" in markdown([section(alone)], PACKAGES, "today")


def test_the_last_sentence_names_only_what_is_slower_beyond_its_interval() -> None:
    assert summary([section(row(reason="x"))]) == "Nothing was measured."
    assert summary([section(row(1.2), row(0.97))]).endswith("in 0 of 2 comparisons.")
    text = summary([section(row(1.2), row(0.8, peer="OpenVINO"))])
    assert text.endswith("in 1 of 2 comparisons: net-bs1 (native) against OpenVINO 0.80.")


def test_parts_of_names_choose_cases() -> None:
    names = ["a-bs1", "a-bs16", "b-bs1"]
    assert named(names, [], ["b-bs1"]) == ["b-bs1"]
    assert named(names, ["all"], []) == names
    assert named(names, ["a-", "bs16"], []) == ["a-bs1", "a-bs16"]
