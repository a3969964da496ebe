"""Which parts of a command are secrets."""

from __future__ import annotations

import html
import json
import time
import urllib.parse

import pytest

from ipubench.fixtures.case.masking import (
    is_secret,
    mask_output,
    mask_text,
    mask_words,
    masked,
    remember,
    remember_environment,
    secrets_under,
)
from ipubench.plugins.record.files import storable


@pytest.mark.parametrize(
    "name",
    [
        *("token", "GITHUB_TOKEN", "apikey", "PGPASSWORD", "accessTokenId", "--api-key"),
        *("AWS_SECRET_ACCESS_KEY", "password_file", "db.password", "Credentials"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["tokenizer", "tokens", "num_keys", "KEYS", "KeyError", "size", "PWD"]
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("--set=token=abc", "--set=token=***"),
        ("x --token abc --size 3", "x --token *** --size 3"),
        ("x --token='a b' y", "x --token='***' y"),
        ("PYTEST_ADDOPTS=--api-key abc", "PYTEST_ADDOPTS=--api-key ***"),
        ("https://me:pw@host/x", "https://me:***@host/x"),
        ("postgres://:pw@host", "postgres://:***@host"),
        (
            "/baselines/https:/me:pw@host/x is not there",
            "/baselines/https:/me:***@host/x is not there",
        ),
        ("test_a.py::test[token=ab] token=ab", "test_a.py::test[token=ab] token=***"),
        ("token=***0-bs16", "token=***0-bs16"),
        ("https://ghp_abc@host/x", "https://***@host/x"),
        ("https://host/?a=1&token=abc&b=2", "https://host/?a=1&token=***&b=2"),
        ('{"token": "abc", "a": 1}', '{"token": "***", "a": 1}'),
        ("-H 'Authorization: Bearer abc'", "-H 'Authorization: ***'"),
        ("api_key: abc", "api_key: ***"),
        ("Authorization: Basic YWJj", "Authorization: ***"),
        ("BEARER abc", "BEARER ***"),
        ("PGPASSWORD=abc", "PGPASSWORD=***"),
        ("db_passwd=abc", "db_passwd=***"),
        ("passphrase=abc", "passphrase=***"),
        ("MY_PWD=abc", "MY_PWD=***"),
        ("Credentials=abc", "Credentials=***"),
        ("client_secret=abc", "client_secret=***"),
        ('password = "abc"', 'password = "***"'),
        ("db_password= 'a b'", "db_password= '***'"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("-H 'x-auth-token: a b'", "-H 'x-auth-token: ***'"),
    ],
)
def test_secrets_in_texts(text: str, stored: str) -> None:
    assert mask_text(text) == stored
    assert mask_text(stored) == stored


@pytest.mark.parametrize(
    "text",
    [
        *("--token $GITHUB_TOKEN", "--token=${X}", "--max-token=128 --use-key true", "--key"),
        *("ssh://git@host", "bench_key.py::bench[x]", "KeyError: 'x'", "unknown key: x"),
        *("assert KEY == 'another'", "token = open(path)", "x-size: 3"),
        *("a.py:3: no token", "write --set=KEY=VALUE[,VALUE...]", "--api-key=API_KEY"),
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert mask_text(text) == text


def test_splitting_keeps_blanks() -> None:
    words = ["--token", "a b", "--size", "a b", "--set=token=a b", "--password", "--next", "c"]
    shown = ["--token", "***", "--size", "a b", "--set=token=***", "--password", "--next", "c"]
    assert mask_words(words) == shown


def test_values_of_secret_variables_are_found_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "abcdefgh")
    monkeypatch.setenv("SHORT_TOKEN", "ab")
    remember_environment()
    assert mask_text("it printed abcdefgh, ab") == "it printed ***, ab"


SEVERAL = "first line of it\nsecond<&>\"'\\line é\nend"
SECOND = SEVERAL.split("\n")[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SEVERAL, "***"),
        (repr(SEVERAL), "'***'"),
        (json.dumps([SEVERAL]), '["***"]'),
        (html.escape(SEVERAL), "***"),
        (urllib.parse.quote("a/secret of+mine"), "***"),
        (urllib.parse.quote_plus("a/secret of+mine"), "***"),
        (urllib.parse.quote("a/secret of+mine", safe=""), "***"),
        (repr(json.dumps(SEVERAL)), "'\"***\"'"),
        (f"{SECOND}, alone", "***, alone"),
        (repr(SECOND), "'***'"),
        (f"'{repr(SECOND)[1:12]}...{repr(SECOND)[-11:]}", "'***...***'"),
        ("first line of it...", "***..."),
        ("first l...", "first l..."),
        (
            "test_second.py::test[first line of it] ran",
            "test_second.py::test[first line of it] ran",
        ),
    ],
)
def test_a_known_secret_is_found_escaped_cut_and_line_by_line(text: str, shown: str) -> None:
    remember([SEVERAL, "a/secret of+mine"])
    assert mask_text(text) == shown


def test_a_case_name_before_a_colon_is_not_a_secret() -> None:
    assert mask_output("test_password: ±3% token=abc") == "test_password: ±3% token=***"
    assert mask_text("password: abc") == "password: ***"


def test_values_follow_their_names() -> None:
    stored = masked({"env": (("TOKEN", "abc"), ("A", "b")), "password": "x", "n": {"key": 128}})
    assert stored == {"env": (("TOKEN", "***"), ("A", "b")), "password": "***", "n": {"key": 128}}


def test_all_that_a_secret_name_contains_is_secret() -> None:
    facts = {"credentials": {"user": "me", "list": ["ab", {"x": "cd"}]}, "a": {"api_token": "ef"}}
    hidden = {"credentials": {"user": "***", "list": ["***", {"x": "***"}]}}
    assert masked(facts) == storable(facts) == {**hidden, "a": {"api_token": "***"}}
    assert secrets_under(facts) == ["me", "ab", "cd", "ef"]
    assert secrets_under([("api_token", "ef"), ("a", "b"), ("c",)]) == ["ef"]
    outcomes = {"test_a.py::test_password": "passed"}
    assert masked(outcomes) == storable(outcomes) == outcomes


@pytest.mark.parametrize(
    "part",
    ["key", "--", "://:", "-key ", '"\\', "token=", "a", "=token", "x.py::t[", "..."],
)
def test_long_texts_are_fast(part: str) -> None:
    started = time.process_time()
    mask_text(part * 40_000)
    mask_words([part * 40_000])
    assert time.process_time() - started < 5
