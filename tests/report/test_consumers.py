"""Real programs read the suite's files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipubench.plugins.report.files import write
from tests.support.harness import ROOT
from tests.support.reports import large_report
from tests.support.stored import record_of

pytestmark = pytest.mark.slow

STORED = ROOT / "tests" / "stored"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    folder = tmp_path_factory.mktemp("report")
    write(large_report(), folder)
    return folder


def needs(module: str) -> Any:
    return pytest.importorskip(module, reason=f"{module} is not installed: make setup installs it")


def test_pytest_benchmark_compares_two_reports(written: Path, tmp_path: Path) -> None:
    faster = json.loads((written / "pytest-benchmark.json").read_text(encoding="utf-8"))
    for benchmark in faster["benchmarks"]:
        for key in ("min", "max", "mean", "median"):
            benchmark["stats"][key] /= 2
    (tmp_path / "faster.json").write_text(json.dumps(faster))
    answer = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "--csv=out.csv",
         str(written / "pytest-benchmark.json"), str(tmp_path / "faster.json")],
        cwd=str(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout.decode()
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * len(faster["benchmarks"])


def test_pandas_reads_the_table_with_its_numbers(written: Path) -> None:
    pandas = needs("pandas")
    table = pandas.read_csv(written / "results.csv")
    document = json.loads((written / "baseline.json").read_text(encoding="utf-8"))
    rates = {b["fullname"]: record_of(b)["throughput"]["median"] for b in document["benchmarks"]}
    column = next(name for name in table.columns if name.startswith("throughput"))
    assert table[column].dtype.kind == "f"
    found = dict(zip(table["case"], table[column]))
    assert {name: found[name] for name in rates} == pytest.approx(rates)
    assert "regressed" in set(table["verdict"])


def test_the_published_schemas_are_valid_and_files_fit_them(written: Path, tmp_path: Path) -> None:
    needs("check_jsonschema")
    command = [sys.executable, "-m", "scripts.schema", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    schema, of_verdicts = tmp_path / "schema.json", tmp_path / "verdicts-schema.json"

    def check(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "check_jsonschema", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    answer = check("--check-metaschema", str(schema), str(of_verdicts))
    assert answer.returncode == 0, answer.stdout.decode()
    verdicts = written / "verdicts.json"
    answer = check("--schemafile", str(of_verdicts), str(verdicts))
    assert answer.returncode == 0, answer.stdout.decode()
    wrong = tmp_path / "wrong.json"
    wrong.write_text(verdicts.read_text(encoding="utf-8").replace('"regressed"', '"worse"'))
    assert check("--schemafile", str(of_verdicts), str(wrong)).returncode == 1
    stored = [STORED / "baseline.json", STORED / "report.json", *STORED.glob("history/*/*.json")]
    files = map(str, [written / "baseline.json", *stored])
    answer = check("--schemafile", str(schema), *files)
    assert answer.returncode == 0, answer.stdout.decode()
    damaged = json.loads((written / "baseline.json").read_text(encoding="utf-8"))
    record_of(damaged["benchmarks"][0])["throughput"]["median"] = "fast"
    other = written / "damaged.json"
    other.write_text(json.dumps(damaged))
    assert check("--schemafile", str(schema), str(other)).returncode == 1
