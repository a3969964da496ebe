"""Poplar's options: what is accepted, and what becomes of those the user exported."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipubench.fixtures.case.errors import CaseError
from ipubench.fixtures.poplar.options import (
    parse_options,
    reporting,
    reports_in,
)

ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"  # Poplar's own name


def test_values_become_the_text_that_poplar_reads() -> None:
    text = (
        '{"availableMemoryProportion": 0.2, "use128BitConvUnitLoad": true, "partialsType": "half"}'
    )
    assert parse_options(text) == {
        "availableMemoryProportion": "0.2",
        "use128BitConvUnitLoad": "true",
        "partialsType": "half",
    }


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_nothing_is_no_options(text: str) -> None:
    assert parse_options(text) == {}


@given(st.dictionaries(st.text(), st.text()))
def test_text_is_kept_as_it_is(options: Dict[str, str]) -> None:
    assert parse_options(json.dumps(options)) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", '\'{\' is not JSON .*; write {"availableMemoryProportion": "0.2"}'),
        ("partialsType=half", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ("0.2", "is not a JSON object"),
        ('{"a": null}', "a: the value of a Poplar option is text, not None"),
        ('{"a": {"b": 1}}', "a: the value of a Poplar option is text"),
    ],
)
def test_what_is_no_set_of_options_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_options(text)


def test_reports_keep_what_the_user_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = '{"autoReport.all": "false", "autoReport.directory": ".", "debug.trace": "true"}'
    monkeypatch.setenv(ENGINE_OPTIONS, exported)
    with reports_in(Path("/reports/case")):
        assert json.loads(os.environ[ENGINE_OPTIONS]) == {
            "autoReport.all": "false",
            "autoReport.directory": "/reports/case",
            "debug.trace": "true",
        }
    assert os.environ[ENGINE_OPTIONS] == exported


@pytest.mark.parametrize("variable", ["POPART_CACHE_DIR", "POPXL_CACHE_DIR"])
def test_what_reports_is_not_kept_for_runs_that_time(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/kept")
    monkeypatch.delenv("POPTORCH_CACHE_DIR", raising=False)
    before = {**os.environ}
    with reports_in(Path("/reports")):
        assert variable not in os.environ
    assert os.environ == before


def test_reports_are_asked_for_in_full_and_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_OPTIONS, raising=False)
    with pytest.raises(KeyError), reports_in(Path("/reports")):
        options = json.loads(os.environ[ENGINE_OPTIONS])
        assert options == {"autoReport.all": "true", "autoReport.directory": "/reports"}
        raise KeyError
    assert ENGINE_OPTIONS not in os.environ


def test_a_corrupt_export_is_one_message() -> None:
    with pytest.raises(CaseError, match=f"the environment's {ENGINE_OPTIONS}: .*is not JSON"):
        reporting({ENGINE_OPTIONS: "autoReport.all=true"}, Path("/reports"))
