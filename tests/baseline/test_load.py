"""`ipubench.load`: stored results as flat records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import ipubench

STORED = Path(__file__).parents[1] / "stored"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def test_a_report_is_a_record_per_case_with_its_verdict() -> None:
    (first, second) = ipubench.load(STORED / "report.json")
    assert first["case"] == "bench_fake.py::bench_fake[alpha-bs8-synthetic-noise0.05]"
    assert (round(first["throughput"]), first["unit"], first["compile_s"]) == (799, "items/s", 2)
    assert (first["verdict"], first["gate"], first["git"]) == ("pass", 0.05, None)
    assert (second["verdict"], second["gate"]) == ("new", None)
    assert first.keys() == second.keys()
    assert {type(value) for value in first.values()} <= {str, int, float, bool, type(None)}


def test_a_journal_and_a_folder_are_read_too(tmp_path: Path) -> None:
    journal = STORED / "pairs.jsonl"
    shutil.copy(journal, tmp_path / "run-20261127T000000-1.jsonl")
    assert ipubench.load(str(journal)) == ipubench.load(tmp_path)
    assert ipubench.load(STORED / "baseline.json")[0]["verdict"] == "measured"
    with pytest.raises(ipubench.BaselineError, match="neither a journal"):
        ipubench.load(STORED / "specs")


def test_every_key_is_documented() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Results as records")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = re.findall("`(.*?)`", " ".join(rows))
    (record, *_) = ipubench.load(STORED / "report.json")
    assert sorted(documented) == sorted(record)


def test_records_become_a_table_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    table = pandas.DataFrame(ipubench.load(STORED / "report.json"))
    assert table.shape[0] == 2 and table["throughput"].dtype == float


def test_the_version_is_the_installed_one() -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+.*", ipubench.__version__)
