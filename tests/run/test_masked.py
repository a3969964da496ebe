"""A session's output, reports and files contain no secret."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from _pytest._io import TerminalWriter

from ipubench.fixtures.case.masking import parameter_name
from ipubench.plugins.run import masked
from tests.support.harness import Project

CANARY = "c4n4ry-of-the-environment"
#: As in a private key; of the last line only the letters are checked.
LINES = ["c4n4ry+line/one==", "c4n4ry+line/two==", "c4n4ry<\"odd'\\>\t&"]
TESTS = """
import html, json, os, warnings
import pytest
from _pytest._io import TerminalWriter

KEY = os.environ["DEPLOY_KEY"]

def test_prints(benchmark):
    print(KEY, repr(KEY), json.dumps(KEY), html.escape(KEY))
    local = KEY
    benchmark(sum, range(99))
    assert KEY == "another"

@pytest.mark.xfail(reason=f"refused: {KEY}")
def test_fails_as_expected(benchmark):
    warnings.warn(f"old: {KEY}")
    raise RuntimeError(KEY)

@pytest.mark.parametrize("how", [{"api_token": "c4n4ry-four"}, ["a", {"password": "c4n4ry-five"}]])
def test_nested(benchmark, how, record_property):
    benchmark.extra_info["api_token"] = "c4n4ry-six"
    benchmark.extra_info["nested"] = {"credentials": {"user": ["c4n4ry-seven"]}}
    record_property("api_token", "c4n4ry-eight")
    print(how, benchmark.extra_info)
    benchmark(sum, range(99))
    assert "x" in str(how)

@pytest.mark.parametrize("token", ["c4n4ry-one", "c4n4ry-two"])
def test_own(benchmark, token):
    benchmark(sum, range(99))

@pytest.mark.parametrize("how", ["token=c4n4ry-three"])
def test_own_text(meter, how):
    meter(lambda: sum(range(99)), items=1, unit=KEY.splitlines()[0])
"""


@pytest.mark.parametrize("style", ["long", "native"])
def test_a_traceback_of_any_style_contains_no_secret(
    style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", CANARY)
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(f"a server says 401 to {CANARY}")
    item: Any = SimpleNamespace(stash={})
    report: Any = SimpleNamespace(longrepr=caught.getrepr(style=style), wasxfail=f"for {CANARY}")
    masked.mask_report_of(item, report)
    assert CANARY not in str(report.longrepr) and "401 to ***" in str(report.longrepr)
    assert report.wasxfail == "for ***"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("token", "c4n4ry-parameter", "***"),
        ("how", "token=c4n4ry-parameter", "token=***"),
        ("token", "the", None),
        ("key", "an-ordinary-word", None),
        ("size", 12345678, None),
    ],
)
def test_a_test_name_hides_the_secret_of_its_parameter(
    name: str, value: object, shown: Optional[str]
) -> None:
    assert parameter_name(value, name) == shown


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_no_file_of_a_run_contains_a_line_of_a_secret(project: Project, workers: Any) -> None:
    (project.folder / "test_secrets.py").write_text(TESTS)
    project.environment["DEPLOY_KEY"] = "\n".join(LINES)
    words = [
        "test_secrets.py",
        "-k",
        "test_secrets",
        "--report=out",
        "--junitxml=junit.xml",
        "--benchmark-json=own.json",
    ]
    words += [
        "--baseline-save=main",
        "--processes=1",
        "--keep-disturbed",
        "--budget=0.1",
        "--device=cpu",
    ]
    outcome = project.run(*words, "-rA", "--showlocals", *workers).assert_code(1)
    leaks = [line for line in outcome.lines if "c4n4ry" in line]
    for path in project.folder.rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            leaks += [path.name] if b"c4n4ry" in path.read_bytes() else []
    assert leaks == []
    stored = [one["fullname"] for one in project.baseline()["benchmarks"]]
    assert stored == [f"test_secrets.py::test_own[***{number}]" for number in (0, 1)] + [
        "test_secrets.py::test_own_text[token=***]"
    ]


def test_a_usage_error_that_quotes_a_file_cannot_write_to_the_terminal() -> None:
    file = io.StringIO()
    TerminalWriter(file).line("ERROR: the entry a\x1b[2J\n::error::b")
    assert file.getvalue() == "ERROR: the entry a\\x1b[2J\n\\x3a:error::b\n"
