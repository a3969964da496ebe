"""One comment per workflow: a service that holds comments, and what a job does to them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
from pathlib import Path

import pytest

from ipubench.plugins.report import comment
from ipubench.plugins.report.comment import main
from tests.support.comments import Comments, serving


@pytest.fixture(params=["github", "gitlab"])
def job(
    request: pytest.FixtureRequest,
    service: Comments,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Comments:
    """Be a job of either service; return what holds its comments."""
    for name in ("GITHUB_REPOSITORY", "CI_API_V4_URL", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    address = f"http://127.0.0.1:{service.server_address[1]}"
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    variables = {
        "github": {
            "GITHUB_REPOSITORY": "me/suite",
            "GITHUB_API_URL": address,
            "GITHUB_EVENT_PATH": str(event),
            "GH_TOKEN": "one-secret",
        },
        "gitlab": {
            "CI_API_V4_URL": address,
            "CI_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "7",
            "BENCHMARK_TOKEN": "one-secret",
        },
    }
    for name, value in variables[request.param].items():
        monkeypatch.setenv(name, value)
    (tmp_path / "summary.md").write_text("**fine** 🟢\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return service


def test_a_comment_is_added_once_and_then_replaced(job: Comments, tmp_path: Path) -> None:
    assert main(["summary.md", "--name=benchmarks"]) == 0
    assert job.bodies == {1: "<!-- ipubench: benchmarks -->\n**fine** 🟢\n"}
    (tmp_path / "summary.md").write_text("bad\n")
    assert main(["summary.md", "--name=benchmarks"]) == 0
    assert job.bodies == {1: "<!-- ipubench: benchmarks -->\nbad\n"}


def test_the_comments_of_others_stay(job: Comments) -> None:
    """Also one that quotes ours, one of a workflow whose name begins alike, and the last one."""
    others = {
        1: "me first",
        2: "<!-- ipubench: benchmarks 2 -->\nanother workflow",
        3: "> <!-- ipubench: benchmarks -->\nwhat does this mean?",
        4: "",
    }
    # More than one page, as services change the ends of lines.
    others.update({number: f"comment {number}" for number in range(5, 140)})
    job.bodies.update(others)
    job.bodies[140] = "<!-- ipubench: benchmarks -->\r\nold"
    job.bodies[141] = "the last one, of a person"
    assert main(["summary.md", "--name=benchmarks"]) == 0
    assert job.bodies.pop(140) == "<!-- ipubench: benchmarks -->\n**fine** 🟢\n"
    assert job.bodies.pop(141) == "the last one, of a person"
    assert job.bodies == others


def test_a_refusal_is_one_message(job: Comments, capsys: pytest.CaptureFixture[str]) -> None:
    job.refuses = True
    assert main(["summary.md", "--name=benchmarks"]) == 1
    said = capsys.readouterr().err
    assert "403 Forbidden" in said and "may the job's token write comments?" in said
    assert "secret" not in said


def test_the_token_is_not_sent_on_to_where_an_answer_leads(job: Comments) -> None:
    with serving() as other:
        job.elsewhere = f"http://127.0.0.1:{other.server_address[1]}/"
        with contextlib.suppress(SystemExit):
            main(["summary.md", "--name=benchmarks"])
        assert [token is not None for token in job.tokens] == [True]
        assert other.tokens == [None]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", " \t"])
def test_blanks_round_a_token_are_no_part_of_it(
    job: Comments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """As a file of a secret ends. The service, which quotes the token, is told without it."""
    for name in ("GH_TOKEN", "BENCHMARK_TOKEN"):
        monkeypatch.setenv(name, f"one-secret{end}")
    assert main(["summary.md", "--name=benchmarks"]) == 0
    job.refuses = True
    assert main(["summary.md", "--name=benchmarks"]) == 1
    said = capsys.readouterr().err
    assert "accessible with" in said and "secret" not in said


@pytest.mark.parametrize(
    "token", ["one\nsecret", "one\rsecret", "one-secr\u20act", "one\x7fsecret"]
)
def test_a_token_that_no_header_can_hold_is_not_shown(
    job: Comments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], token: str
) -> None:
    for name in ("GH_TOKEN", "BENCHMARK_TOKEN"):
        monkeypatch.setenv(name, token)
    assert main(["summary.md", "--name=benchmarks"]) == 4
    said = capsys.readouterr().err
    assert "_TOKEN has characters that no token has" in said
    assert "secr" not in said
    assert job.asked == []


@pytest.mark.parametrize("address", ["", "example.org", "http://[", "http://a b"])
def test_an_address_that_is_none_is_one_message(
    job: Comments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    for name in ("GITHUB_API_URL", "CI_API_V4_URL"):
        if name in os.environ:
            monkeypatch.setenv(name, address)
    assert main(["summary.md", "--name=benchmarks"]) == (1 if address else 4)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "secret" not in said
    assert address or "_URL is not set in this job" in said


@pytest.mark.parametrize(
    "answer",
    [
        b'{"message": "no"}',
        b'["x"]',
        b"null",
        b"7",
        b"",
        b"[",
        b"\xff",
        b'[{"body": "x"}]',
        b'[{"id": "7", "body": "x"}]',
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="nested"),
    ],
)
def test_an_answer_of_another_kind_is_one_message(
    job: Comments, capsys: pytest.CaptureFixture[str], answer: bytes
) -> None:
    job.odd = answer
    assert main(["summary.md", "--name=benchmarks"]) == 1
    said = capsys.readouterr().err
    assert "the answer is no list of comments" in said and len(said.splitlines()) == 1


def test_an_answer_that_breaks_off_is_one_message(
    job: Comments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(response: http.client.HTTPResponse, *size: int) -> bytes:
        raise http.client.IncompleteRead(b"[")

    monkeypatch.setattr(http.client.HTTPResponse, "read", broken)
    for job.refuses in (False, True):
        assert main(["summary.md", "--name=benchmarks"]) == 1
        assert "IncompleteRead" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "x --> <b>", "a--b", "y" * 81, "two\nlines"])
def test_a_name_that_could_leave_the_hidden_line_is_refused(job: Comments, name: str) -> None:
    assert main(["summary.md", f"--name={name}"]) == 4
    assert job.asked == []


def test_what_a_job_lacks_is_named(
    job: Comments, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["none.md", "--name=x"]) == 4
    assert "none.md cannot be read" in capsys.readouterr().err
    for name in ("GH_TOKEN", "BENCHMARK_TOKEN"):
        monkeypatch.setenv(name, "")
    assert main(["summary.md", "--name=x"]) == 4
    assert "_TOKEN is not set in this job" in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.delenv("CI_API_V4_URL", raising=False)
    assert main(["summary.md", "--name=x"]) == 4
    assert "this is no job of GitHub or GitLab" in capsys.readouterr().err
    assert job.asked == []


def test_the_help_names_the_variables_that_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    names = set(re.findall(r"[A-Z]+_[A-Z_0-9]+", str(comment.__doc__)))
    assert len(names) == 8 and names == set(re.findall(r"[A-Z]+_[A-Z_0-9]+", said))


def test_a_job_without_a_pull_request_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "event.json").write_text("{}")
    (tmp_path / "summary.md").write_text("x")
    monkeypatch.setenv("GITHUB_REPOSITORY", "me/suite")
    monkeypatch.setenv("GITHUB_EVENT_PATH", "event.json")
    monkeypatch.setenv("GH_TOKEN", "secret")
    assert main(["summary.md", "--name=x"]) == 4
    assert "names no pull request" in capsys.readouterr().err
