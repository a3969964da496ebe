"""Texts for the terminal."""

from __future__ import annotations

from ipubench.plugins.record.text import cut_middle, table


def test_a_table_fits_and_cuts_names_in_their_middle() -> None:
    rows = [("case", "n"), ("a-name-that-is-long", "12")]
    assert table(rows, 20) == ["case               n", "a-name-..is-long  12"]
    assert cut_middle("short", 10) == "short"


def test_a_table_cuts_no_name_so_far_that_it_is_anothers() -> None:
    rows = [("case", "n"), ("resnet18-bs1-synthetic", "12"), ("resnet50-bs1-synthetic", "7")]
    names = [line.split()[0] for line in table(rows, 14)]
    assert names == ["case", "resnet1..nthetic", "resnet5..nthetic"]
