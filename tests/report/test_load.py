"""`ipubench.load`: stored results as flat records."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import ipubench
from ipubench.plugins.baseline.store import write
from tests.support.baselines import document, entry

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
    with pytest.raises(ipubench.BaselineError, match="neither a journal"):
        ipubench.load(STORED.parent)  # it has folders with other JSON files


def test_a_history_is_a_record_per_run_and_marks_the_first_run_of_a_level(tmp_path: Path) -> None:
    pytest.importorskip("ruptures", reason="pip install ruptures")
    for day in range(1, 12):
        run = entry(time=f"2026-01-{day:02}T00:00:00Z", slower=1.25 if day > 6 else 1 + day / 5000)
        write(tmp_path / "machine" / f"202601{day:02}.json", document(run))
    records = ipubench.load(tmp_path)
    assert [one["time"][8:10] for one in records] == [f"{day:02}" for day in range(1, 12)]
    assert [number for number, one in enumerate(records) if one["change"] is not None] == [6]
    assert records[6]["change"] == pytest.approx(-0.2, abs=0.01)
    assert records[6]["change_low"] < records[6]["change"] < records[6]["change_high"]
    assert records[0].keys() == ipubench.load(STORED / "report.json")[0].keys()
    assert ipubench.load(tmp_path / "machine") == records


def test_a_run_is_compared_with_a_baseline(tmp_path: Path) -> None:
    write(tmp_path / "before.json", document(entry(processes=9)))
    write(tmp_path / "now.json", document(entry(slower=2.0, processes=9)))
    (found,) = ipubench.load(tmp_path / "now.json", baseline=tmp_path / "before.json", gate=0.05)
    assert (found["verdict"], found["gate"]) == ("regressed", 0.05)
    assert found["change"] == pytest.approx(-0.5, abs=0.01)


def test_every_key_is_documented() -> None:
    section = PAGE.read_text(encoding="utf-8").split("| keys |")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    documented = re.findall("`(.*?)`", " ".join(rows))
    (record, *_) = ipubench.load(STORED / "report.json")
    assert sorted(documented) == sorted(record)


def test_records_become_a_table_of_pandas() -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    table = ipubench.load(STORED / "report.json").to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert table.shape[0] == 2 and table["throughput"].dtype == float


def test_the_version_is_the_installed_one() -> None:
    assert re.fullmatch(r"[0-9]+\.[0-9]+.*", ipubench.__version__)
