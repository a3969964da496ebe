"""Texts for the terminal."""

from __future__ import annotations

from ipubench.plugins.record.text import (
    cut_middle,
    distinct_names,
    parts_of,
    table,
    without_identifier,
)


def test_a_table_fits_and_cuts_names_in_the_middle() -> None:
    rows = [("case", "n"), ("a-name-that-is-long", "12")]
    assert table(rows, 20) == ["case               n", "a-name-..is-long  12"]
    assert cut_middle("short", 10) == "short"


def test_a_table_never_cuts_two_names_to_the_same_text() -> None:
    rows = [("case", "n"), ("resnet18-bs1-synthetic", "12"), ("resnet50-bs1-synthetic", "7")]
    names = [line.split()[0] for line in table(rows, 14)]
    assert names == ["case", "resnet1..nthetic", "resnet5..nthetic"]


def test_each_case_has_the_shortest_unique_part_of_its_node_id() -> None:
    names = {"a.py::test_op[+]": "op", "a.py::test_op[-]": "op", "a.py::f[c]": "c"}
    names.update({"a.py::test_sort": "test_sort", "a.py::B::test_sort": "test_sort"})
    assert distinct_names(names) == {
        "a.py::test_op[+]": "test_op[+]",
        "a.py::test_op[-]": "test_op[-]",
        "a.py::f[c]": "c",
        "a.py::test_sort": "a.py::test_sort",
        "a.py::B::test_sort": "a.py::B::test_sort",
    }


def test_a_node_id_has_three_parts() -> None:
    plain = "test_a.py::TestA::test_one"
    assert parts_of(plain) == ("test_a.py", "TestA::test_one", "")
    assert without_identifier(plain) == plain
    assert parts_of("a[1].py::test_two[x@y]") == ("a[1].py", "test_two", "x@y")
