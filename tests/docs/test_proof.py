"""The comparisons with releases of other projects: scripts/proof."""

from __future__ import annotations

import json
from typing import Any, Dict, List

from scripts.proof import page
from scripts.proof.__main__ import RESULTS
from scripts.proof.releases import FASTER, RELEASES, SAME, SLOWER
from scripts.proof.tools import as_asv


def test_each_release_has_a_benchmark_of_ten_lines_that_asv_can_run() -> None:
    for release in RELEASES:
        lines = [line for line in release.test.splitlines() if line]
        assert len(lines) <= 10
        assert (release.known == SAME) == (not release.words)
        compile(as_asv(release.test), release.package, "exec")


def test_asv_sees_no_class_of_a_package() -> None:
    names: Dict[str, Any] = {}
    exec(as_asv("from json import JSONDecoder\n\n\ndef test_it(benchmark):\n    pass\n"), names)  # noqa: S102
    names["time_it"]()
    assert not [name for name, value in names.items() if isinstance(value, type)]


def test_an_answer_is_found_missed_or_false() -> None:
    first, last = RELEASES[0], RELEASES[-1]
    assert (first.known, last.known) == (FASTER, SAME)

    def sums(found_first: str, found_last: str) -> List[str]:
        given = {first: found_first, last: found_last}
        answers = {
            page.key_of(one): {"asv": {"found": found, "seconds": 60.0}}
            for one, found in given.items()
        }
        (row,) = page.sums("quiet", {"answers": answers})
        return row[2:]

    assert sums(FASTER, SAME) == ["1 of 1", "0", "0", "0", "2"]
    assert sums(SAME, FASTER) == ["0 of 1", "1", "1", "0", "2"]
    assert sums(SLOWER, "inconclusive") == ["0 of 1", "0", "1", "1", "2"]


def test_the_page_has_the_tables_of_the_results() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_tables(text, json.loads(RESULTS.read_text())) == text
